#pragma once
#include <cstdint>
#include <string_view>

namespace epmoe {

/// How rows lie between dispatch and the experts (vLLM: FusedMoEActivationFormat).
enum class ActivationFormat : std::uint8_t {
  standard,         ///< [rows, hidden], rows in receive order
  batched_experts,  ///< [local experts, max tokens per rank x dispatchers, hidden], rows padded per expert
};
constexpr std::string_view name(ActivationFormat format) {
  return format == ActivationFormat::standard ? "standard" : "batched_experts";
}

/// What an experts part takes and gives; checked against the prepare/finalize part in ModularKernel's constructor.
struct ActivationFormats {
  ActivationFormat in = ActivationFormat::standard;
  ActivationFormat out = ActivationFormat::standard;
};

}  // namespace epmoe
