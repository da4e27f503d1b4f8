#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "choices.hpp"
#include "commands.hpp"
#include "epmoe/checkpoint/synth.hpp"
#include "job.hpp"

namespace epmoe::cli {
namespace {

struct SynthFlags {
  std::string name, dir;
  double scale = 1.0;
  std::string dtype = "bf16";
  std::uint64_t seed = 0;
};

int synth(Job& job, const SynthFlags& flags) {
  Choices{"--dtype", {"f32", "f16", "bf16"}, {}}.check(flags.dtype);
  if (job.size() > 1) throw ConfigError(fmt::format("synth: one rank writes the checkpoint, {} found", job.size()));
  const bool terminal = isatty(STDERR_FILENO) == 1;
  std::uint64_t bytes = 0;
  checkpoint::synthesize(flags.name, flags.dir, flags.scale, *parse_dtype(flags.dtype), flags.seed,
                         [&](std::uint64_t done, std::uint64_t of) {
                           bytes = of;
                           if (terminal) fmt::print(stderr, "\r{} of {} MiB\033[K", done >> 20U, of >> 20U);
                         });
  if (terminal) fmt::print(stderr, "\r\033[K");
  fmt::print("{}: {} at scale {}, {}, {:.1f} MiB of tensors\n", flags.dir, flags.name, flags.scale, flags.dtype,
             static_cast<double>(bytes) / (1 << 20));
  return kFine;
}

}  // namespace

Command add_synth(CLI::App& app) {
  auto* command = app.add_subcommand("synth", "Write a random checkpoint in the shape of a known model");
  const auto flags = std::make_shared<SynthFlags>();
  command->add_option("NAME", flags->name, "model, say mixtral-8x7b or qwen3-30b-a3b")->required();
  command->add_option("DIR", flags->dir, "where to write config.json and the tensors")->required();
  command->add_option("--scale", flags->scale, "factor of layers and experts; hidden sizes stay")
      ->capture_default_str();
  command->add_option("--dtype", flags->dtype, "f32, f16 or bf16")->capture_default_str();
  command->add_option("--seed", flags->seed, "of the weights")->capture_default_str();
  return [flags](Job& job) { return synth(job, *flags); };
}

}  // namespace epmoe::cli
