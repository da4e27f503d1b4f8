#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "epmoe/prepare_finalize/factory.hpp"
#include "support/world.hpp"

/// One MoE call with experts done by hand (expert e multiplies its rows by (e + 1) / 8, or leaves them as they are),
/// and an oracle that knows nothing of messages: it encodes and decodes, weighs and adds each token on its own.
namespace epmoe::test {

/// A mistake in the owner's work that a comparison must find.
enum class Fault { none, swap_two_experts, drop_rows_of_rank_0, shift_a_weight };

struct Case {
  std::string strategy = "alltoall";
  PrepareFinalizeConfig config{.hidden = 16, .top_k = 2, .experts = 8};
  std::shared_ptr<const Placement> placement = nullptr;
  std::vector<std::int64_t> tokens = {};  ///< per rank
  std::uint64_t seed = 1;
  bool identity = false;
  std::int64_t stride = 0;  ///< of x; 0 = hidden
  DType x_type = DType::f32;
};

/// This rank's input of a case. Values carry the rank and the token.
struct Input {
  Input(const Case& c, OwnedRouting r);
  std::vector<std::byte> memory;
  ConstMatrixView x;
  OwnedRouting routing;
  StepPlan plan;
  std::int64_t first_token = 0;
  [[nodiscard]] PrepareInput prepare(const Case& c) const;
};

/// Seeded routing over a case's experts with some kNoExpert (every 11th entry), NaN weights beside them.
OwnedRouting random_routing(const Case& c);

/// What the experts answer for a part.
struct HandExperts {
  std::vector<float> values;
  ExpertOutput output;
};
HandExperts hand_experts(const ExpertBatch& batch, const Case& c, Fault fault = Fault::none);

/// All parts, then home. `parts` counts them.
std::vector<float> finish_call(PrepareFinalize& strategy, Prepared first, const Input& input, const Case& c,
                               const ExecutionContext& context, Fault fault = Fault::none, int* parts = nullptr);
std::vector<float> round_trip(PrepareFinalize& strategy, const Input& input, const Case& c,
                              const ExecutionContext& context, Fault fault = Fault::none, int* parts = nullptr);

std::vector<float> oracle(const Input& input, const Case& c);
/// Values whose bits differ (NaN equals NaN).
std::int64_t differing(const std::vector<float>& found, const std::vector<float>& wanted);

/// Sum over all ranks.
std::int64_t over_ranks(std::int64_t mine, const ExecutionContext& context);

/// Pads or cuts a list of tokens per rank to the size of the world.
std::vector<std::int64_t> per_rank(std::vector<std::int64_t> tokens);
/// Strategies that fit the world.
std::vector<std::string> fitting_strategies();

}  // namespace epmoe::test
