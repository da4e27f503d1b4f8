#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>

#include "commands.hpp"
#include "job.hpp"
#include "launch.hpp"

namespace epmoe::cli {
namespace {

int run_command_line(Job& job, int argc, char** argv) {
  CLI::App app(
      "Expert-parallel mixture-of-experts layers over MPI.\n"
      "mpirun -n P epmoe COMMAND; without mpirun it is one rank.",
      "epmoe");
  app.require_subcommand(0, 1);
  app.set_version_flag("--version", EPMOE_VERSION);
  std::string log_level = "info";
  app.add_option("--log-level", log_level, "trace, debug, info, warn, error or off")->capture_default_str();
  app.fallthrough();
  const Command commands[] = {add_run(app), add_synth(app), add_bench(app)};
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& asked) {  // --help, --version
    if (job.first()) app.exit(asked);
    return kFine;
  } catch (const CLI::ParseError& error) {
    throw ConfigError(fmt::format("{} (epmoe --help lists commands, epmoe COMMAND --help flags)", error.what()));
  }
  job.set_log_level(log_level);
  std::size_t index = 0;
  for (const auto* subcommand : app.get_subcommands({})) {
    if (subcommand->parsed()) return commands[index](job);
    ++index;
  }
  throw ConfigError("a command is wanted: run, synth or bench (epmoe --help tells more)");
}

int guarded(int argc, char** argv) {
  try {
    Job job;
    try {
      return run_command_line(job, argc, argv);
    } catch (const Error& error) {
      return job.fail(exit_code(error.code()), error.what());
    } catch (const std::exception& error) {
      return job.fail(kFailed, error.what());
    }
  } catch (const std::exception& error) {  // MPI did not start
    fmt::print(stderr, "epmoe: {}\n", error.what());
    return kFailed;
  }
}

}  // namespace
}  // namespace epmoe::cli

int main(int argc, char** argv) {
  epmoe::cli::restart_with_safe_defaults(argv);
  return epmoe::cli::guarded(argc, argv);
}
