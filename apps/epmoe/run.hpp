#pragma once
#include "job.hpp"
#include "run_options.hpp"

namespace epmoe::cli {

/// Collective. Runs the layers as the flags say, prints and writes what they ask for, and returns the exit code.
int run(Job& job, const RunOptions& options);

}  // namespace epmoe::cli
