#pragma once
#include <cstdint>

#include "epmoe/comm/communicator.hpp"
#include "epmoe/runtime/moe_layer.hpp"

namespace epmoe {

/// How far a layer's output is from the truth, over the tokens of all ranks.
struct Verification {
  double error = 0.0;      ///< relative L2 against the f64 reference that quantises alike
  double worst_row = 0.0;  ///< the worst single token's
  double drift = 0.0;      ///< relative L2 against the unquantised f64 reference
  double tolerance = 0.0;  ///< what `error` may be; a row may have four times that
  bool ok = false;         ///< within tolerance, and no value missing or NaN where the reference has a number
};

/// Collective: each rank computes the reference for its own tokens (asking `source` for every expert they use) and
/// the sums are joined. y [tokens, hidden] f32 is what the layer gave for x with `routing`.
Verification verify_layer(const comm::Communicator& comm, const LayerSource& source, const RunConfig& config,
                          ConstMatrixView x, const Routing& routing, ConstMatrixView y,
                          const ExecutionContext& context);

}  // namespace epmoe
