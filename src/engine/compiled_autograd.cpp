#include "ahead/compiled_autograd.h"

#include <exception>

#include "ahead/errors.h"
#include "base/intern.h"
#include "engine/cache.h"
#include "engine/driver.h"
#include "engine/gate.h"
#include "runtime/backends.h"

namespace ahead {
namespace {

/// The scopes open on this thread, from the outermost; empty settings: disabled.
thread_local std::vector<std::optional<engine::Settings>> scopes;

int64_t open(std::optional<engine::Settings> settings) {
  scopes.push_back(std::move(settings));
  return static_cast<int64_t>(scopes.size());
}

void close(int64_t depth) {
  const bool is_innermost = depth == static_cast<int64_t>(scopes.size());
  if (depth <= static_cast<int64_t>(scopes.size())) scopes.resize(static_cast<size_t>(depth - 1));
  if (is_innermost || std::uncaught_exceptions() > 0) return;
  throw UserError("compiled autograd",
                  "Enable, Disable: Nested Compiled Autograd Contexts must return before their "
                  "parent context. End inner scopes first, on the thread that opened them.");
}

}  // namespace

namespace engine {

const Settings* current_settings() {
  return scopes.empty() || !scopes.back() ? nullptr : &*scopes.back();
}

}  // namespace engine

namespace compiled_autograd {

Enable::Enable(Options options) {
  runtime::find_backend(options.backend);
  engine::install_gate();
  // Backwards for fixed sizes only are not those for changing ones.
  const std::string* backend =
      intern(options.backend + (options.dynamic.value_or(true) ? "" : " for fixed sizes"));
  depth_ = open(engine::Settings{std::move(options), backend});
}

Enable::~Enable() noexcept(false) {
  close(depth_);
}

Disable::Disable() : depth_(open(std::nullopt)) {}

Disable::~Disable() noexcept(false) {
  close(depth_);
}

Stats stats() {
  return engine::Cache::instance().stats();
}

std::vector<std::string> reasons() {
  return engine::Cache::instance().reasons();
}

std::vector<std::shared_ptr<const Graph>> graphs() {
  return engine::Cache::instance().graphs();
}

void reset() {
  if (engine::is_running()) {
    throw UserError("compiled autograd",
                    "reset: a captured backward is running on this thread. Call it afterwards.");
  }
  engine::Cache::instance().clear();
}

}  // namespace compiled_autograd
}  // namespace ahead
