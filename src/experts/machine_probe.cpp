#include "epmoe/experts/machine_probe.hpp"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstring>

#include "epmoe/core/aligned_memory.hpp"
#include "epmoe/core/error.hpp"
#include "experts/kernels/probe.hpp"

namespace epmoe {
namespace {

constexpr std::int64_t kChunkBytes = 256 << 10;  // of a stream, per task
constexpr std::int64_t kPieces = 8;              // tasks per worker, so that a late worker does not decide
constexpr std::int64_t kRounds = 20'000;         // per task: tens of microseconds

auto dot_loop(DotType type) {
  const kernels::ProbeFunctions& functions = *kernels::best_probe_set().functions;
  switch (type) {
    case DotType::bf16: return functions.bf16;
    case DotType::int8: return functions.int8;
    default: return functions.f32;
  }
}

}  // namespace

MachineProbe::MachineProbe(std::int64_t bytes) : bytes_(round_up(std::max<std::int64_t>(bytes, 1), 2 << 20)) {
  void* memory =
      mmap(nullptr, static_cast<std::size_t>(bytes_), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw InternalError(fmt::format("machine probe: out of memory: {} bytes wanted", bytes_));
#ifdef MADV_HUGEPAGE
  (void)madvise(memory, static_cast<std::size_t>(bytes_), MADV_HUGEPAGE);  // a wish: small pages only read slower
#endif
  memory_ = static_cast<std::byte*>(memory);
  std::memset(memory_, 1, static_cast<std::size_t>(bytes_));
}

MachineProbe::~MachineProbe() {
  munmap(memory_, static_cast<std::size_t>(bytes_));
}

std::string_view MachineProbe::isa() {
  return kernels::best_probe_set().name;
}

double MachineProbe::read_bytes_per_s(Executor& executor, std::int64_t bytes) {
  const int workers = executor.workers();
  next_.resize(std::max(next_.size(), static_cast<std::size_t>(workers)), 0);
  const std::int64_t part_chunks = std::max<std::int64_t>(bytes_ / kChunkBytes / workers, 1);
  const std::int64_t chunks = bytes_ / kChunkBytes;
  const std::int64_t tasks = std::max<std::int64_t>(bytes / kChunkBytes, 1);
  const auto read = kernels::best_probe_set().functions->read;
  std::atomic<std::uint64_t> sink{0};
  const double start = steady_clock().now();
  executor.run(
      tasks,
      [&](std::int64_t, int worker) {
        std::int64_t& next = next_[static_cast<std::size_t>(worker)];
        const std::int64_t chunk = (worker * part_chunks + next % part_chunks) % chunks;
        next = (next + 1) % part_chunks;
        const std::uint64_t value = read(memory_ + chunk * kChunkBytes, kChunkBytes);
        sink.fetch_xor(value, std::memory_order_relaxed);
      },
      nullptr);
  return static_cast<double>(tasks * kChunkBytes) / (steady_clock().now() - start);
}

double MachineProbe::dots_per_s(DotType type, Executor& executor) {
  const auto loop = dot_loop(type);
  std::vector<double> operations(static_cast<std::size_t>(executor.workers() * kPieces), 0.0);
  const double start = steady_clock().now();
  executor.run(
      static_cast<std::int64_t>(operations.size()),
      [&](std::int64_t task, int) { operations[static_cast<std::size_t>(task)] = loop(kRounds); }, nullptr);
  const double seconds = steady_clock().now() - start;
  double sum = 0.0;
  for (const double count : operations) sum += count;
  return sum / seconds;
}

}  // namespace epmoe
