#include "epmoe/core/execution_context.hpp"

#include <chrono>

#include "core/name_table.hpp"

namespace epmoe {
namespace {

constexpr NamedValue<Phase> kPhases[] = {
    {Phase::route, "route"}, {Phase::quantize, "quantize"}, {Phase::dispatch, "dispatch"}, {Phase::permute, "permute"},
    {Phase::gemm1, "gemm1"}, {Phase::act, "act"},           {Phase::gemm2, "gemm2"},       {Phase::combine, "combine"},
    {Phase::wait, "wait"},   {Phase::shared, "shared"},
};

class SteadyClock final : public Clock {
 public:
  [[nodiscard]] double now() const override {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  }
};

}  // namespace

std::string_view name(Phase phase) {
  return find_name(kPhases, phase);
}

const Clock& steady_clock() {
  static const SteadyClock clock;
  return clock;
}

}  // namespace epmoe
