// One MoE layer with random weights over all ranks, checked against the f64 reference.
// usage: consumer RANKS (refuses to run in a world of another size)
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <epmoe/comm/environment.hpp>
#include <epmoe/comm/expert_group.hpp>
#include <epmoe/core/random.hpp>
#include <epmoe/experts/reference.hpp>
#include <epmoe/runtime/moe_layer.hpp>
#include <memory>
#include <vector>

namespace {

constexpr std::int64_t kHidden = 48, kIntermediate = 32, kExperts = 6, kTopK = 2, kTokens = 5;

std::vector<float> random_matrix(std::uint64_t seed, std::int64_t rows, std::int64_t cols, float scale) {
  std::vector<float> values;
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < cols; ++c)
      values.push_back(scale *
                       epmoe::random_normal(seed, static_cast<std::uint64_t>(r), static_cast<std::uint64_t>(c)));
  return values;
}

struct ExpertMatrices {
  std::vector<float> gate, up, down;
  [[nodiscard]] epmoe::ExpertWeights view() const {
    return {epmoe::const_matrix_view(gate.data(), kIntermediate, kHidden),
            epmoe::const_matrix_view(up.data(), kIntermediate, kHidden),
            epmoe::const_matrix_view(down.data(), kHidden, kIntermediate)};
  }
};

int run() {
  epmoe::WorkspaceSet workspaces;
  const auto executor = epmoe::make_openmp_executor(1);
  epmoe::ExecutionContext context;
  context.executor = executor.get();
  context.workspaces = &workspaces;

  const auto group = epmoe::comm::ExpertGroup::create(epmoe::comm::Communicator::world(), {}, context);
  std::vector<ExpertMatrices> experts;
  for (std::uint64_t e = 0; e < kExperts; ++e)
    experts.push_back({random_matrix(10 + e, kIntermediate, kHidden, 0.2F),
                       random_matrix(30 + e, kIntermediate, kHidden, 0.2F),
                       random_matrix(50 + e, kHidden, kIntermediate, 0.2F)});
  const auto router = random_matrix(1, kExperts, kHidden, 0.5F);

  epmoe::LayerSource source;
  source.config.hidden = kHidden;
  source.config.intermediate = kIntermediate;
  source.config.experts = kExperts;
  source.config.top_k = kTopK;
  source.router = epmoe::const_matrix_view(router.data(), kExperts, kHidden);
  source.expert = [&](std::int32_t e) { return experts[static_cast<std::size_t>(e)].view(); };
  epmoe::MoeLayer layer(group, epmoe::Placement::linear(kExperts, group->size()), source, epmoe::RunConfig{}, context);

  const auto x = random_matrix(100 + static_cast<std::uint64_t>(group->rank()), kTokens, kHidden, 1.0F);
  const auto x_view = epmoe::const_matrix_view(x.data(), kTokens, kHidden);
  std::vector<float> y(static_cast<std::size_t>(kTokens * kHidden), std::nanf(""));
  layer.forward(x_view, epmoe::matrix_view(y.data(), kTokens, kHidden), nullptr, context);

  epmoe::ReferenceConfig reference;
  reference.shape = source.config;
  const auto routing = layer.route(x_view, context);
  const auto wanted = epmoe::reference_moe(reference, x_view, routing.view(), source.expert);
  const double error = epmoe::relative_error(epmoe::const_matrix_view(y.data(), kTokens, kHidden), wanted).total;
  std::printf("rank %d of %d: relative error %.1e\n", group->rank(), group->size(), error);
  return error < 1e-5 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  const epmoe::comm::Environment environment;
  const int wanted = argc > 1 ? std::atoi(argv[1]) : 0;
  const int ranks = epmoe::comm::Communicator::world().size();
  if (ranks != wanted) {
    std::fprintf(stderr, "%d ranks found, %d wanted\n", ranks, wanted);
    return 2;
  }
  return run();
}
