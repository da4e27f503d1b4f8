#include "epmoe/core/tensor_view.hpp"

#include <fmt/format.h>

#include <cstring>

#include "epmoe/core/error.hpp"

namespace epmoe {
namespace {

// Rows may lie at any address (checkpoint files are mapped), hence memcpy, which compiles to plain vector loads.
template <class T>
T load(const std::byte* p) {
  T value;
  std::memcpy(&value, p, sizeof(T));
  return value;
}

template <class T>
void widen(const std::byte* in, std::int64_t n, float* out) {
  for (std::int64_t i = 0; i < n; ++i) out[i] = to_float(load<T>(in + i * static_cast<std::int64_t>(sizeof(T))));
}

[[noreturn]] void throw_not_a_float(DType found) {
  throw InputError(fmt::format("a tensor is {}, wanted f32, f16 or bf16", name(found)));
}

}  // namespace

void throw_wrong_dtype(DType found, DType wanted) {
  throw InputError(fmt::format("a tensor is {}, wanted {}", name(found), name(wanted)));
}

bool overlap(ConstMatrixView a, ConstMatrixView b) {
  if (extent_bytes(a) == 0 || extent_bytes(b) == 0) return false;
  const auto begin = [](const ConstMatrixView& view, std::int64_t r) {
    return reinterpret_cast<std::uintptr_t>(view.data) +
           static_cast<std::uintptr_t>(r * view.stride * size_bytes(view.dtype));
  };
  const auto bytes = [](const ConstMatrixView& view) {
    return static_cast<std::uintptr_t>(view.cols * size_bytes(view.dtype));
  };
  const auto past = [](const ConstMatrixView& view) {
    return reinterpret_cast<std::uintptr_t>(view.data) + static_cast<std::uintptr_t>(extent_bytes(view));
  };
  if (past(a) <= begin(b, 0) || past(b) <= begin(a, 0)) return false;
  // The ranges meet, the rows need not: columns of one matrix lie between each other. Rows ascend in both.
  for (std::int64_t i = 0, j = 0; i < a.rows && j < b.rows;) {
    if (begin(a, i) + bytes(a) <= begin(b, j))
      ++i;
    else if (begin(b, j) + bytes(b) <= begin(a, i))
      ++j;
    else
      return true;
  }
  return false;
}

std::string describe(ConstMatrixView view) {
  return fmt::format("[{}, {}] {}", view.rows, view.cols, name(view.dtype));
}

void read_row(ConstMatrixView view, std::int64_t row, float* out) {
  const std::byte* in = view.row(row);
  switch (view.dtype) {
    case DType::f32: std::memcpy(out, in, static_cast<std::size_t>(view.cols) * sizeof(float)); return;
    case DType::f16: widen<f16>(in, view.cols, out); return;
    case DType::bf16: widen<bf16>(in, view.cols, out); return;
    default: throw_not_a_float(view.dtype);
  }
}

void write_row(MatrixView view, std::int64_t row, const float* in) {
  std::byte* out = view.row(row);
  switch (view.dtype) {
    case DType::f32: std::memcpy(out, in, static_cast<std::size_t>(view.cols) * sizeof(float)); return;
    case DType::f16:
      for (std::int64_t i = 0; i < view.cols; ++i) {
        const f16 value = to_f16(in[i]);
        std::memcpy(out + i * 2, &value, 2);
      }
      return;
    case DType::bf16:
      for (std::int64_t i = 0; i < view.cols; ++i) {
        const bf16 value = to_bf16(in[i]);
        std::memcpy(out + i * 2, &value, 2);
      }
      return;
    default: throw_not_a_float(view.dtype);
  }
}

}  // namespace epmoe
