#include <CLI/CLI.hpp>
#include <memory>

#include "commands.hpp"
#include "run.hpp"

namespace epmoe::cli {

Command add_run(CLI::App& app) {
  auto* command = app.add_subcommand("run", "Run MoE layers of a checkpoint with their experts spread over the ranks");
  const auto options = std::make_shared<RunOptions>();
  add_flags(*command, *options);
  return [options](Job& job) { return run(job, *options); };
}

}  // namespace epmoe::cli
