#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>

#include "epmoe/core/dtype.hpp"

/// Non-owning row-major matrices. `MatrixView` carries its dtype at run time and is what crosses virtual
/// interfaces; `TypedView` has dtype and axes in its type and is what the inside of a stage works on.
namespace epmoe {

/// Axis names, declared and never defined: a [Slot, Hidden] is not accepted where [Token, Hidden] is due.
struct Token;
struct Row;    ///< a received row (one token at one owner rank)
struct Entry;  ///< a (row, expert) pair
struct Hidden;
struct Intermediate;
struct Expert;
struct TopK;

enum class MemorySpace : std::uint8_t { host, node_shared };

/// Throws InputError: dtype found and wanted.
[[noreturn]] void throw_wrong_dtype(DType found, DType wanted);

template <class T, class RowAxis, class ColAxis>
struct TypedView {
  T* data = nullptr;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t stride = 0;  ///< elements from one row to the next, >= cols

  [[nodiscard]] T* row(std::int64_t r) const { return data + r * stride; }
  [[nodiscard]] T& operator()(std::int64_t r, std::int64_t c) const { return data[r * stride + c]; }
  [[nodiscard]] TypedView slice(std::int64_t begin, std::int64_t count) const {
    return {count > 0 ? row(begin) : data, count, cols, stride};
  }
  operator TypedView<const T, RowAxis, ColAxis>() const  // NOLINT: a view of constants is a weaker promise
    requires(!std::is_const_v<T>)
  {
    return {data, rows, cols, stride};
  }
};

/// Run-time typed matrix view. `Pointer` is `void*` or `const void*`.
template <class Pointer>
struct BasicMatrixView {
  Pointer data = nullptr;  ///< may be null when rows == 0
  DType dtype = DType::f32;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t stride = 0;  ///< leading dimension in elements, >= cols
  MemorySpace space = MemorySpace::host;

  static constexpr bool is_const = std::is_const_v<std::remove_pointer_t<Pointer>>;
  using Byte = std::conditional_t<is_const, const std::byte, std::byte>;

  [[nodiscard]] Byte* row(std::int64_t r) const { return static_cast<Byte*>(data) + r * stride * size_bytes(dtype); }
  [[nodiscard]] BasicMatrixView slice(std::int64_t begin, std::int64_t count) const {
    BasicMatrixView part = *this;
    if (count > 0) part.data = row(begin);
    part.rows = count;
    return part;
  }
  /// The checked door to a typed view. Throws InputError on another dtype.
  template <class T, class RowAxis, class ColAxis>
  [[nodiscard]] auto as() const {
    using Value = std::remove_const_t<T>;
    using Element = std::conditional_t<is_const, const Value, T>;
    if (dtype != dtype_of_v<Value>) throw_wrong_dtype(dtype, dtype_of_v<Value>);
    return TypedView<Element, RowAxis, ColAxis>{static_cast<Element*>(data), rows, cols, stride};
  }
  operator BasicMatrixView<const void*>() const  // NOLINT: a view of constants is a weaker promise
    requires(!is_const)
  {
    return {data, dtype, rows, cols, stride, space};
  }
};
using MatrixView = BasicMatrixView<void*>;
using ConstMatrixView = BasicMatrixView<const void*>;

/// Dense view over `data`; stride 0 means `cols`.
template <class T>
MatrixView matrix_view(T* data, std::int64_t rows, std::int64_t cols, std::int64_t stride = 0)
  requires(!std::is_const_v<T>)
{
  return {data, dtype_of_v<T>, rows, cols, stride == 0 ? cols : stride, MemorySpace::host};
}
template <class T>
ConstMatrixView const_matrix_view(const T* data, std::int64_t rows, std::int64_t cols, std::int64_t stride = 0) {
  return {data, dtype_of_v<T>, rows, cols, stride == 0 ? cols : stride, MemorySpace::host};
}

/// Bytes a view spans from its first to past its last element; 0 without rows.
template <class Pointer>
std::int64_t extent_bytes(const BasicMatrixView<Pointer>& view) {
  return view.rows == 0 ? 0 : ((view.rows - 1) * view.stride + view.cols) * size_bytes(view.dtype);
}
/// Whether two views share a byte.
bool overlap(ConstMatrixView a, ConstMatrixView b);

/// "[rows, cols] dtype" for messages.
std::string describe(ConstMatrixView view);

/// Reads one row as f32 into `out[cols]`. The view's dtype must be f32, f16 or bf16 (InputError otherwise).
void read_row(ConstMatrixView view, std::int64_t row, float* out);
/// Writes `in[cols]` to one row, rounded to nearest even. The view's dtype must be f32, f16 or bf16.
void write_row(MatrixView view, std::int64_t row, const float* in);

}  // namespace epmoe
