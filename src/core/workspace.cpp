#include "epmoe/core/workspace.hpp"

#include <fmt/format.h>

#include "epmoe/core/error.hpp"

namespace epmoe {

std::byte* SharedResizableBuffer::get(std::int64_t bytes) {
  if (bytes <= buffer_.size()) return buffer_.data();
  if (locked_)
    throw InternalError(
        fmt::format("workspace {} is locked at {} bytes, {} bytes wanted: reserve for more tokens "
                    "before lock()",
                    name_, buffer_.size(), bytes));
  buffer_ = AlignedBuffer();  // before the new one is made: the contents are lost anyway, and the peak stays low
  buffer_ = AlignedBuffer(round_up(bytes, kCacheLineBytes));
  return buffer_.data();
}

}  // namespace epmoe
