#include "experts/onednn/packed_matmul.hpp"

#include <fmt/format.h>
#include <omp.h>

#include <atomic>
#include <map>
#include <mutex>
#include <oneapi/dnnl/dnnl.hpp>
#include <shared_mutex>
#include <utility>

#include "epmoe/core/aligned_memory.hpp"

namespace epmoe::onednn {
namespace {

using DataType = dnnl::memory::data_type;
using Tag = dnnl::memory::format_tag;

struct Types {
  DataType a, w, c;
  Tag layout;  // ExpertSlots' bytes; `any` would choose another layout for some M
};
Types types_of(ComputeType compute) {
  switch (compute) {
    case ComputeType::bf16: return {DataType::bf16, DataType::bf16, DataType::f32, Tag::BA16a64b2a};
    case ComputeType::int8: return {DataType::u8, DataType::s8, DataType::s32, Tag::BA16a64b4a};
    default: return {DataType::f32, DataType::f32, DataType::f32, Tag::BA16a64b};
  }
}

dnnl::matmul::primitive_desc describe_matmul(const dnnl::engine& engine, ComputeType compute, std::int64_t rows,
                                             std::int64_t k, std::int64_t n) {
  const Types types = types_of(compute);
  const dnnl::memory::desc a({rows, k}, types.a, Tag::ab);
  const dnnl::memory::desc w({k, n}, types.w, types.layout);
  const dnnl::memory::desc c({rows, n}, types.c, Tag::ab);
  dnnl::primitive_attr attributes;  // own scratchpad: the library's belongs to the thread that made the primitive
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
#if DNNL_VERSION_MAJOR >= 3
  return {engine, a, w, c, attributes};
#else
  return {dnnl::matmul::desc(a, w, c), attributes, engine};
#endif
}

bool contains(const std::string& text, const char* part) {
  return text.find(part) != std::string::npos;
}

/// "brg:avx512_core_bf16" in 2.x, "brg_matmul:avx512_core_bf16" in 3.x.
Verdict judge(ComputeType compute, const std::string& implementation) {
  if (!implementation.starts_with("brg"))
    return Verdict::no(fmt::format("oneDNN {} would use its implementation '{}' for {}, not a blocked kernel",
                                   library_version(), implementation, name(compute)));
  if (compute == ComputeType::int8 && !contains(implementation, "vnni") && !contains(implementation, "amx") &&
      !contains(implementation, "avx10"))
    return Verdict::no(fmt::format("oneDNN {} would use '{}' for int8, which adds in saturating 16-bit lanes",
                                   library_version(), implementation));
  return Verdict::yes();
}

std::byte* writable(const std::byte* p) {
  return const_cast<std::byte*>(p);
}  // dnnl::memory has no const handles

}  // namespace

std::string library_version() {
  const auto* version = dnnl::version();
  return fmt::format("{}.{}.{}", version->major, version->minor, version->patch);
}

ThreadLimit::ThreadLimit(int threads) : before_(omp_get_max_threads()) {
  omp_set_num_threads(threads);
}
ThreadLimit::~ThreadLimit() {
  omp_set_num_threads(before_);
}

Verdict probe(ComputeType compute, std::int64_t rows, std::int64_t k, std::int64_t n, std::string* implementation) {
  try {
    const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
    const std::string found = describe_matmul(engine, compute, rows, k, n).impl_info_str();
    Verdict verdict = judge(compute, found);
    if (verdict.ok && implementation != nullptr) *implementation = found;
    return verdict;
  } catch (const dnnl::error& error) {
    return Verdict::no(fmt::format("oneDNN {} has no {} matrix product on this CPU ({})", library_version(),
                                   name(compute), error.what()));
  }
}

struct PackedMatmul::State {
  struct Entry {
    dnnl::matmul::primitive_desc desc;
    dnnl::matmul primitive;
    std::int64_t scratchpad_bytes = 0;
  };
  using Key = std::pair<std::int64_t, int>;  // rows, threads: blocking is chosen for both

  ComputeType compute;
  std::int64_t k, n;
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  std::shared_mutex mutex;
  std::map<Key, Entry> entries;  // entries never move nor go
  std::atomic<std::int64_t> found{0};

  const Entry& get(const Key& key) {
    {
      const std::shared_lock lock(mutex);
      const auto it = entries.find(key);
      if (it != entries.end()) {
        found.fetch_add(1, std::memory_order_relaxed);
        return it->second;
      }
    }
    const std::unique_lock lock(mutex);
    const auto it = entries.find(key);  // made meanwhile by another thread?
    if (it != entries.end()) {
      found.fetch_add(1, std::memory_order_relaxed);
      return it->second;
    }
    Entry entry;
    entry.desc = describe_matmul(engine, compute, key.first, k, n);
    const Verdict verdict = judge(compute, entry.desc.impl_info_str());
    if (!verdict) throw InternalError(fmt::format("{} ([{}, {}] x [{}, {}])", verdict.reason, key.first, k, k, n));
    entry.primitive = dnnl::matmul(entry.desc);
    entry.scratchpad_bytes = static_cast<std::int64_t>(entry.desc.scratchpad_desc().get_size());
    return entries.emplace(key, std::move(entry)).first->second;
  }
};

PackedMatmul::PackedMatmul(ComputeType compute, std::int64_t k, std::int64_t n) {
  try {
    state_.reset(new State{.compute = compute, .k = k, .n = n, .mutex = {}, .entries = {}});
  } catch (const dnnl::error& error) {
    throw InternalError(fmt::format("oneDNN {}: no engine for this CPU ({})", library_version(), error.what()));
  }
}
PackedMatmul::~PackedMatmul() = default;

void PackedMatmul::run(std::int64_t rows, int threads, const std::byte* a, const std::byte* w, std::byte* c) const {
  try {
    const State::Entry& entry = state_->get({rows, threads});
    constexpr std::int64_t kOnStack = 4096;  // 1.1 to 1.4 KiB with 2.6 and 3.7
    alignas(kCacheLineBytes) std::byte small[kOnStack];
    AlignedBuffer large;
    if (entry.scratchpad_bytes > kOnStack) large = AlignedBuffer(entry.scratchpad_bytes);
    std::byte* scratchpad = entry.scratchpad_bytes > kOnStack ? large.data() : small;

    const dnnl::engine& engine = state_->engine;
    dnnl::stream stream(engine);
    entry.primitive.execute(stream,
                            {{DNNL_ARG_SRC, dnnl::memory(entry.desc.src_desc(), engine, writable(a))},
                             {DNNL_ARG_WEIGHTS, dnnl::memory(entry.desc.weights_desc(), engine, writable(w))},
                             {DNNL_ARG_DST, dnnl::memory(entry.desc.dst_desc(), engine, c)},
                             {DNNL_ARG_SCRATCHPAD, dnnl::memory(entry.desc.scratchpad_desc(), engine, scratchpad)}});
    stream.wait();
  } catch (const dnnl::error& error) {
    throw InternalError(fmt::format("oneDNN {} failed on [{}, {}] x [{}, {}] {}: {}", library_version(), rows,
                                    state_->k, state_->k, state_->n, name(state_->compute), error.what()));
  }
}

PackedMatmul::Counts PackedMatmul::counts() const {
  const std::shared_lock lock(state_->mutex);
  return {static_cast<std::int64_t>(state_->entries.size()), state_->found.load(std::memory_order_relaxed)};
}

}  // namespace epmoe::onednn
