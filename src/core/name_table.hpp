#pragma once
#include <cstddef>
#include <optional>
#include <string_view>

namespace epmoe {

/// One spelling of an enum value.
template <class Enum>
struct NamedValue {
  Enum value;
  std::string_view text;
};

template <class Enum, std::size_t N>
constexpr std::string_view find_name(const NamedValue<Enum> (&table)[N], Enum value) {
  for (const auto& entry : table)
    if (entry.value == value) return entry.text;
  return "unknown";
}

template <class Enum, std::size_t N>
constexpr std::optional<Enum> find_value(const NamedValue<Enum> (&table)[N], std::string_view text) {
  for (const auto& entry : table)
    if (entry.text == text) return entry.value;
  return std::nullopt;
}

}  // namespace epmoe
