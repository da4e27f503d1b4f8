#pragma once
#include "epmoe/experts/experts.hpp"

/// What each back end contributes to the table in backends.cpp, and what all of them check alike.
namespace epmoe {

BackendInfo native_backend();
#if EPMOE_WITH_ONEDNN
std::vector<BackendInfo> onednn_backends();
#endif
BackendInfo reference_backend();

namespace experts {

/// Shapes and quantisation schemes that no back end here has: names the field.
Verdict supports_quantisation(const ExpertsConfig& config);
/// Throws InputError when batch, index, slots and output do not belong together.
void check_apply(const Experts& experts, const ExpertBatch& batch, const ExpertIndex& index, const ExpertSlots& slots,
                 const MatrixView& output);
/// The layout all back ends share.
PackedLayout packed_layout_of(const ExpertsConfig& config);

}  // namespace experts
}  // namespace epmoe
