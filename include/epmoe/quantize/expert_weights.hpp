#pragma once
#include <optional>

#include "epmoe/core/tensor_view.hpp"

namespace epmoe {

/// One expert's weights as a checkpoint stores them: views of f32, f16 or bf16, row-major [out, in], possibly
/// unaligned and strided. Valid as long as whoever made them says.
struct ExpertWeights {
  ConstMatrixView gate;  ///< [I, H]
  ConstMatrixView up;    ///< [I, H]; rows == 0 where the activation is not gated, and up_bias then too
  ConstMatrixView down;  ///< [H, I]
  /// Biases, [1, I], [1, I], [1, H]; rows == 0 where there are none.
  ConstMatrixView gate_bias{}, up_bias{}, down_bias{};
};

}  // namespace epmoe
