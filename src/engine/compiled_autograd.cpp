#include "ahead/compiled_autograd.h"

#include <exception>

#include "ahead/errors.h"
#include "base/intern.h"
#include "base/private_members.h"
#include "engine/cache.h"
#include "engine/driver.h"
#include "engine/gate.h"
#include "runtime/backends.h"

namespace ahead {
namespace {

/// An Enable, or a Disable, which has no settings.
struct Scope {
  std::shared_ptr<const engine::Settings> settings;
  std::optional<engine::GateScope> gate;
  int64_t depth;
  std::unique_ptr<Scope> outer;
};

/// Those open on this thread. It may end with open scopes; and static destructors, which come after
/// the main thread's own objects, may open some.
struct Scopes {
  ~Scopes() {
    while (innermost != nullptr) pop();
  }
  static void pop() {
    const std::unique_ptr<Scope> ended(innermost);
    innermost = ended->outer.release();
  }
  static thread_local Scope* innermost;
};

thread_local Scope* Scopes::innermost = nullptr;

int64_t depth() {
  return Scopes::innermost == nullptr ? 0 : Scopes::innermost->depth;
}

int64_t open(std::shared_ptr<const engine::Settings> settings) {
  thread_local const Scopes of_this_thread;
  static_cast<void>(&of_this_thread);
  auto scope = std::make_unique<Scope>();
  scope->depth = depth() + 1;
  if (settings != nullptr) scope->gate.emplace();
  scope->settings = std::move(settings);
  scope->outer.reset(Scopes::innermost);
  Scopes::innermost = scope.release();
  return depth();
}

void close(int64_t closed) {
  const bool is_innermost = closed == depth();
  while (depth() >= closed) Scopes::pop();
  if (is_innermost || std::uncaught_exceptions() > 0) return;
  throw UserError("compiled autograd",
                  "Enable, Disable: Nested Compiled Autograd Contexts must return before their "
                  "parent context. End inner scopes first, on the thread that opened them.");
}

}  // namespace

namespace engine {

std::shared_ptr<const Settings> current_settings() {
  return Scopes::innermost == nullptr ? nullptr : Scopes::innermost->settings;
}

}  // namespace engine

namespace compiled_autograd {

Enable::Enable(Options options) {
  check_private_members();
  runtime::find_backend(options.backend);
  // Backwards for fixed sizes only are not those for changing ones.
  const std::string* backend =
      intern(options.backend + (options.dynamic.value_or(true) ? "" : " for fixed sizes"));
  depth_ =
      open(std::make_shared<const engine::Settings>(engine::Settings{std::move(options), backend}));
}

Enable::~Enable() noexcept(false) {
  close(depth_);
}

Disable::Disable() : depth_(open(nullptr)) {}

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
