#include "epmoe/runtime/verify.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <exception>
#include <vector>

#include "epmoe/experts/reference.hpp"

namespace epmoe {
namespace {

/// Sums that join over ranks.
struct Sums {
  double difference = 0.0, wanted = 0.0;              // squares, against the reference that quantises alike
  double plain_difference = 0.0, plain_wanted = 0.0;  // squares, against the unquantised one
  double worst_row = 0.0;
};

std::vector<double> reference(const LayerSource& source, const RunConfig& run, bool alike, ConstMatrixView x,
                              const Routing& routing) {
  ReferenceConfig config;
  config.shape = source.config;
  config.quant = QuantConfig::for_compute(run.compute);
  config.dispatch = run.dispatch;
  config.quantise_alike = alike;
  auto y = reference_moe(config, x, routing, source.expert);
  if (source.shared) {
    auto shared = config;
    shared.shape.intermediate = source.config.shared_intermediate;
    shared.dispatch = DispatchType::f32;  // computed where the token lives: nothing travels
    const auto add = reference_shared(shared, x, *source.shared, source.shared_gate ? &*source.shared_gate : nullptr);
    for (std::size_t i = 0; i < y.size(); ++i) y[i] += add[i];
  }
  return y;
}

/// NaN in one and not in the other counts as an infinite difference; NaN in both as none.
double square_difference(double found, double wanted) {
  if (found == wanted) return 0.0;  // equal infinities too
  if (std::isnan(wanted)) return std::isnan(found) ? 0.0 : INFINITY;
  const auto d = found - wanted;
  return std::isnan(d) ? INFINITY : d * d;
}

}  // namespace

Verification verify_layer(const comm::Communicator& comm, const LayerSource& source, const RunConfig& config,
                          ConstMatrixView x, const Routing& routing, ConstMatrixView y,
                          const ExecutionContext& context) {
  Sums mine;
  std::exception_ptr failure;
  try {
    const auto alike = reference(source, config, true, x, routing);
    const auto plain = reference(source, config, false, x, routing);
    const auto found = y.as<const float, Token, Hidden>();
    for (std::int64_t t = 0; t < found.rows; ++t) {
      double difference = 0.0, wanted = 0.0;
      for (std::int64_t c = 0; c < found.cols; ++c) {
        const auto i = static_cast<std::size_t>(t * found.cols + c);
        const auto value = static_cast<double>(found(t, c));
        difference += square_difference(value, alike[i]);
        mine.plain_difference += square_difference(value, plain[i]);
        if (std::isfinite(alike[i])) wanted += alike[i] * alike[i];
        if (std::isfinite(plain[i])) mine.plain_wanted += plain[i] * plain[i];
      }
      mine.difference += difference;
      mine.wanted += wanted;
      if (difference > 0.0) mine.worst_row = std::max(mine.worst_row, std::sqrt(difference / wanted));
    }
  } catch (...) {
    failure = std::current_exception();
  }
  comm::agree_or_throw(comm, failure, context, "verifying");

  Sums all;
  for (const auto& bytes : comm.all_gather(std::as_bytes(std::span(&mine, 1)), context, "joining errors")) {
    Sums part;
    std::memcpy(&part, bytes.data(), sizeof part);
    all.difference += part.difference;
    all.wanted += part.wanted;
    all.plain_difference += part.plain_difference;
    all.plain_wanted += part.plain_wanted;
    all.worst_row = std::max(all.worst_row, part.worst_row);
  }
  const auto relative = [](double difference, double wanted) {
    return difference > 0.0 ? std::sqrt(difference / wanted) : 0.0;  // x / 0 is infinite: zero was wanted
  };
  Verification result;
  result.error = relative(all.difference, all.wanted);
  result.drift = relative(all.plain_difference, all.plain_wanted);
  result.worst_row = all.worst_row;
  // What combine rounds to bf16 is as coarse as bf16 compute.
  result.tolerance =
      std::max(tolerance(config.compute), config.combine == CombineType::bf16 ? tolerance(ComputeType::bf16) : 0.0);
  result.ok = result.error <= result.tolerance && result.worst_row <= 4.0 * result.tolerance;
  return result;
}

}  // namespace epmoe
