#pragma once
#include <memory>

#include "epmoe/experts/experts.hpp"

namespace epmoe {

/// The expert(s) every token uses, computed at the token's own rank on the original x, added exactly once.
/// Local; const methods are thread-safe.
class SharedExperts {
 public:
  /// `gate` [1, H] (f32) scales the output by sigmoid(x . gate); empty = none.
  SharedExperts(std::shared_ptr<const Experts> experts, std::shared_ptr<const ExpertSlots> slots,
                std::vector<float> gate);
  /// out [tokens, hidden] f32 = shared(x).
  void apply(ConstMatrixView x, MatrixView out, const ExecutionContext& context) const;
  [[nodiscard]] const Experts& experts() const { return *experts_; }

 private:
  std::shared_ptr<const Experts> experts_;
  std::shared_ptr<const ExpertSlots> slots_;
  std::vector<float> gate_;
};

}  // namespace epmoe
