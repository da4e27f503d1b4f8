#include "checkpoint/text.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace epmoe::checkpoint {
namespace {

/// Bytes of the UTF-8 character that `text` starts with, 0 if it starts with none.
std::size_t character_bytes(std::string_view text) {
  const auto lead = static_cast<unsigned char>(text.front());
  const std::size_t size = lead < 0x80 ? 1 : lead < 0xc2 ? 0 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : lead < 0xf5 ? 4 : 0;
  if (size > text.size()) return 0;
  for (std::size_t i = 1; i < size; ++i)
    if ((static_cast<unsigned char>(text[i]) & 0xc0U) != 0x80U) return 0;
  return size;
}

}  // namespace

std::string in_quotes(std::string_view text) {
  constexpr std::size_t kShown = 160;
  std::string out = "\"";
  while (!text.empty() && out.size() < kShown) {
    const std::size_t size = character_bytes(text);
    const auto first = static_cast<unsigned char>(text.front());
    if (size == 0 || first < 0x20 || first == 0x7f)
      out += fmt::format("\\x{:02x}", static_cast<unsigned>(first));
    else
      out += text.substr(0, size);
    text.remove_prefix(std::max<std::size_t>(size, 1));
  }
  return out + (text.empty() ? "\"" : "…\"");
}

std::string shape_text(std::span<const std::int64_t> shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

std::string list_text(const std::vector<std::string>& items, std::size_t shown) {
  const auto first = std::span(items).first(std::min(items.size(), shown));
  std::string out = fmt::format("{}", fmt::join(first, ", "));
  if (items.size() > shown) out += fmt::format(" and {} more", items.size() - shown);
  return out;
}

std::string count_text(std::uint64_t count, std::string_view noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

void fail(const std::filesystem::path& file, const std::string& what) {
  throw CheckpointError(fmt::format("{}: {}", file.string(), what));
}

void fail(const std::filesystem::path& file, std::string_view tensor, const std::string& what) {
  throw CheckpointError(fmt::format("{}: tensor {}: {}", file.string(), in_quotes(tensor), what));
}

}  // namespace epmoe::checkpoint
