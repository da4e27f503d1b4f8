#pragma once
#include <bit>
#include <cstdint>

#include "epmoe/comm/expert_group.hpp"
#include "epmoe/comm/request_set.hpp"

namespace epmoe {

/// A buffer of the group's for messages. Sizes are rounded up to quarter steps between powers of two, so that calls
/// with a few tokens more or less find each other's buffers.
inline comm::SlotPool::Slot take_slot(comm::ExpertGroup& group, std::int64_t bytes) {
  const auto wanted = static_cast<std::uint64_t>(bytes > comm::kBlockBytes ? bytes : comm::kBlockBytes);
  const auto step = std::uint64_t{1} << (std::bit_width(wanted - 1) > 3 ? std::bit_width(wanted - 1) - 3 : 0);
  return group.slots().take(static_cast<std::int64_t>((wanted + step - 1) / step * step));
}

}  // namespace epmoe
