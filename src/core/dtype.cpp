#include "epmoe/core/dtype.hpp"

#include "core/name_table.hpp"

namespace epmoe {
namespace {

constexpr NamedValue<DType> kDTypes[] = {
    {DType::f32, "f32"}, {DType::f16, "f16"}, {DType::bf16, "bf16"}, {DType::i8, "i8"},
    {DType::u8, "u8"},   {DType::i32, "i32"}, {DType::i64, "i64"},   {DType::f8_e4m3, "f8_e4m3"},
};

}  // namespace

std::string_view name(DType dtype) {
  return find_name(kDTypes, dtype);
}
std::optional<DType> parse_dtype(std::string_view text) {
  return find_value(kDTypes, text);
}

}  // namespace epmoe
