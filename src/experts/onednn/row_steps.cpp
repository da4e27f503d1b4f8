#include "experts/onednn/row_steps.hpp"

#include <bit>
#include <cstring>

#include "experts/backends.hpp"
#include "experts/row_conversion.hpp"

namespace epmoe::onednn {
namespace {

constexpr std::uint8_t kUnsigned = 0x80;  // s8 to u8 = s8 + 128: oneDNN's fast int8 kernels take unsigned rows only

void clear(std::byte* from, std::byte* to) {
  std::memset(from, 0, static_cast<std::size_t>(to - from));
}

}  // namespace

RowSteps::RowSteps(const ExpertsConfig& config)
    : config_(config),
      kernels_(*kernels::find_kernel_set("")->functions),
      activation_(kind_of(config.shape.activation)) {
  const PackedLayout layout = experts::packed_layout_of(config);
  input_bytes_ = layout.padded_k(layout.hidden) * layout.element_bytes();
  activated_bytes_ = layout.padded_k(layout.intermediate) * layout.element_bytes();
}

float RowSteps::gather(DispatchType type, const BatchRows& rows, std::int64_t row, float* f32_row,
                       std::byte* out) const {
  const RowSource source{type, rows.row(row), type == DispatchType::int8 ? rows.scale(row) : 1.0F};
  const float scale = RowConversion{config_, kernels_, kUnsigned}.convert(source, out, f32_row);
  const std::int64_t used = config_.shape.hidden * experts::packed_layout_of(config_).element_bytes();
  clear(out + used, out + input_bytes_);
  return scale;
}

void RowSteps::finish(const ColumnData& columns, float row_scale, std::int64_t n, float* c) const {
  if (config_.quant.compute == ComputeType::int8) {
    for (std::int64_t i = 0; i < n; ++i) {
      const std::int32_t sum = std::bit_cast<std::int32_t>(c[i]) - 128 * columns.column_sum[i];
      c[i] = static_cast<float>(sum) * (row_scale * columns.scale[i]);
    }
  }
  if (columns.bias != nullptr)
    for (std::int64_t i = 0; i < n; ++i) c[i] += columns.bias[i];
}

float RowSteps::activate(float* gate, const float* up, std::byte* out) const {
  const std::int64_t n = config_.shape.intermediate;
  kernels::PanelActivation panel;
  panel.kind = activation_;
  panel.rows = 1;
  for (std::int64_t i = 0; i < n; i += kernels::kPanelColumns) {
    panel.gate = gate + i;
    if (up != nullptr) panel.up = up + i;
    panel.out = gate + i;
    kernels_.activate(panel);
  }
  float scale = 1.0F;
  std::int64_t used = n;
  switch (config_.quant.compute) {
    case ComputeType::f32:
      used = n * 4;
      std::memcpy(out, gate, static_cast<std::size_t>(used));
      break;
    case ComputeType::bf16:
      used = n * 2;
      kernels_.round_bf16(gate, n, reinterpret_cast<std::uint16_t*>(out));
      break;
    case ComputeType::int8:
      scale = RowConversion{config_, kernels_, kUnsigned}.quantize(config_.quant.a2, gate, n, out);
      break;
  }
  clear(out + used, out + activated_bytes_);
  return scale;
}

}  // namespace epmoe::onednn
