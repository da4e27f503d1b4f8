#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "epmoe/core/aligned_memory.hpp"

/// Scratch memory shared by all layers of a model (vLLM: SharedResizableBuffer, WorkspaceManager).
namespace epmoe {

/// Grows and never shrinks; contents are lost when it grows. Not thread-safe: one call at a time uses it.
class SharedResizableBuffer {
 public:
  explicit SharedResizableBuffer(std::string name) : name_(std::move(name)) {}
  /// At least `bytes`, uninitialised. After lock(), growth throws InternalError naming buffer, bytes held and wanted.
  std::byte* get(std::int64_t bytes);
  void lock() { locked_ = true; }
  void unlock() { locked_ = false; }
  [[nodiscard]] std::int64_t size() const { return buffer_.size(); }
  [[nodiscard]] const std::string& name() const { return name_; }

 private:
  std::string name_;
  AlignedBuffer buffer_;
  bool locked_ = false;
};

/// The buffers one call in flight uses: one set per micro-batch.
struct WorkspaceSet {
  SharedResizableBuffer workspace13{"workspace13"};  ///< gathered rows and gate/up results; may double as the output
  SharedResizableBuffer workspace2{"workspace2"};    ///< activated rows and down results
  SharedResizableBuffer output{"expert_output"};     ///< rows that go to finalize
  SharedResizableBuffer shared{"shared_experts"};    ///< what the shared experts need
  SharedResizableBuffer result{"result"};            ///< f32 sums where y is not f32, and the shared experts' output
  void lock() {
    for (auto* b : all()) b->lock();
  }
  void unlock() {
    for (auto* b : all()) b->unlock();
  }
  [[nodiscard]] std::int64_t size() {
    std::int64_t total = 0;
    for (auto* b : all()) total += b->size();
    return total;
  }
  std::vector<SharedResizableBuffer*> all() { return {&workspace13, &workspace2, &output, &shared, &result}; }
};

}  // namespace epmoe
