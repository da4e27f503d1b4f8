#include <cstring>

#include "checkpoint/text.hpp"
#include "epmoe/checkpoint/safetensors.hpp"

// A catalog as bytes, to send from the rank that read it to the others: counts and lengths as u64, little end first on
// all hosts that this library runs on.
namespace epmoe::checkpoint {
namespace {

constexpr std::uint64_t kMagic = 0x3130746163706565ULL;  // "eepcat01"

class Writer {
 public:
  void number(std::uint64_t value) {
    const auto* bytes = reinterpret_cast<const std::byte*>(&value);
    out_.insert(out_.end(), bytes, bytes + sizeof value);
  }
  void text(const std::string& value) {
    number(value.size());
    const auto* bytes = reinterpret_cast<const std::byte*>(value.data());
    out_.insert(out_.end(), bytes, bytes + value.size());
  }
  std::vector<std::byte> take() { return std::move(out_); }

 private:
  std::vector<std::byte> out_;
};

class Reader {
 public:
  explicit Reader(std::span<const std::byte> in) : in_(in) {}
  std::uint64_t number() {
    std::uint64_t value = 0;
    need(sizeof value);
    std::memcpy(&value, in_.data(), sizeof value);
    in_ = in_.subspan(sizeof value);
    return value;
  }
  /// A count of things of at least `bytes_each`, so that a damaged one cannot ask for endless memory.
  std::size_t count(std::size_t bytes_each) {
    const std::uint64_t value = number();
    if (value > in_.size() / bytes_each) throw CheckpointError("damaged catalog: it ends too early");
    return value;
  }
  std::string text() {
    const std::size_t size = count(1);
    std::string value(reinterpret_cast<const char*>(in_.data()), size);
    in_ = in_.subspan(size);
    return value;
  }
  [[nodiscard]] bool done() const { return in_.empty(); }

 private:
  std::span<const std::byte> in_;
  void need(std::size_t bytes) const {
    if (in_.size() < bytes) throw CheckpointError("damaged catalog: it ends too early");
  }
};

}  // namespace

std::vector<std::byte> Catalog::serialize() const {
  Writer out;
  out.number(kMagic);
  out.number(files_.size());
  for (std::size_t i = 0; i < files_.size(); ++i) {
    out.text(files_[i].string());
    out.number(sizes_[i]);
  }
  out.number(tensors_.size());
  for (const auto& [name, tensor] : tensors_) {
    out.text(name);
    out.text(tensor.dtype);
    out.number(tensor.shape.size());
    for (const std::int64_t extent : tensor.shape) out.number(static_cast<std::uint64_t>(extent));
    out.number(tensor.file);
    out.number(tensor.begin);
    out.number(tensor.end);
  }
  out.number(notes_.size());
  for (const std::string& note : notes_) out.text(note);
  return out.take();
}

Catalog Catalog::deserialize(std::span<const std::byte> bytes) {
  Reader in(bytes);
  Catalog catalog;
  if (in.number() != kMagic) throw CheckpointError("damaged catalog: it does not start with the catalog's mark");
  const std::size_t files = in.count(16);
  for (std::size_t i = 0; i < files; ++i) {
    catalog.files_.emplace_back(in.text());
    catalog.sizes_.push_back(in.number());
  }
  const std::size_t tensors = in.count(48);
  for (std::size_t i = 0; i < tensors; ++i) {
    TensorInfo tensor;
    tensor.name = in.text();
    tensor.dtype = in.text();
    tensor.shape.resize(in.count(8));
    for (std::int64_t& extent : tensor.shape) extent = static_cast<std::int64_t>(in.number());
    const std::uint64_t file = in.number();
    tensor.begin = in.number();
    tensor.end = in.number();
    if (file >= files || tensor.end < tensor.begin || tensor.end > catalog.sizes_[file])
      throw CheckpointError("damaged catalog: tensor " + in_quotes(tensor.name) + " lies outside its file");
    tensor.file = static_cast<std::uint32_t>(file);
    std::string name = tensor.name;
    catalog.tensors_.emplace_hint(catalog.tensors_.end(), std::move(name), std::move(tensor));
  }
  const std::size_t notes = in.count(8);
  for (std::size_t i = 0; i < notes; ++i) catalog.notes_.push_back(in.text());
  if (!in.done()) throw CheckpointError("damaged catalog: bytes follow its end");
  return catalog;
}

}  // namespace epmoe::checkpoint
