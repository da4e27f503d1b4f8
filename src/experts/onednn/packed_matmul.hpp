#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "epmoe/core/error.hpp"
#include "epmoe/core/quant_config.hpp"

/// The only door to oneDNN.
namespace epmoe::onednn {

/// Threads that oneDNN uses for what the calling thread starts while this lives.
class ThreadLimit {
 public:
  explicit ThreadLimit(int threads);
  ~ThreadLimit();
  ThreadLimit(const ThreadLimit&) = delete;
  ThreadLimit& operator=(const ThreadLimit&) = delete;

 private:
  int before_;
};

/// Whether oneDNN has an implementation for [rows, k] x [k, n] over weights in our packed layout that is worth using
/// and right: one of its blocked ("brg…") kernels. `ref` (hundreds of times slower) and `gemm` (copies the weights at
/// every call) are refused by name, and so are int8 kernels that add in saturating 16-bit lanes (x86 without VNNI).
/// On success `implementation` gets the name. Never throws for what oneDNN reports.
Verdict probe(ComputeType compute, std::int64_t rows, std::int64_t k, std::int64_t n, std::string* implementation);

/// c[rows, n] = a[rows, k] * w[k, n] for one (k, n) and any number of rows; every dense row-major but w, which is in
/// ExpertSlots' layout, k and n being the padded sizes. Types of (a, w, c): f32, f32, f32 | bf16, bf16, f32 |
/// u8, s8, i32. Thread-safe; a primitive is made once for each (rows, threads) and kept.
class PackedMatmul {
 public:
  PackedMatmul(ComputeType compute, std::int64_t k, std::int64_t n);
  ~PackedMatmul();
  PackedMatmul(const PackedMatmul&) = delete;
  PackedMatmul& operator=(const PackedMatmul&) = delete;

  /// Runs with as many threads as the calling thread's ThreadLimit says, which must be `threads`. Throws
  /// InternalError when oneDNN fails or would use an implementation that probe() refuses.
  void run(std::int64_t rows, int threads, const std::byte* a, const std::byte* w, std::byte* c) const;

  /// How often run() made a primitive, and how often it found one.
  struct Counts {
    std::int64_t made = 0;
    std::int64_t found = 0;
  };
  [[nodiscard]] Counts counts() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// "2.6.3"
std::string library_version();

}  // namespace epmoe::onednn
