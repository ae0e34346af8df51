#include "engine/gate.h"

#include <atomic>
#include <mutex>
#include <string_view>
#include <thread>

#include "base/front_engine.h"
#include "engine/driver.h"

namespace ahead::engine {
namespace {

using torch::autograd::Engine;
using torch::autograd::variable_list;
using Lock = std::unique_lock<std::mutex>;

/// So often a backward that met another one on its way, or a change of the way, begins anew. Each
/// lasts for a few instructions.
constexpr int most_attempts = 100000;

/// Also held while LibTorch's engine is told whom to call.
std::mutex& gate_mutex() {
  static auto* mutex = new std::mutex;
  return *mutex;
}

/// Changed under the lock.
std::atomic<int64_t> num_scopes{0};

/// A backward of this thread between the gate and run_backward.
struct Passage {
  Lock lock{};
  bool has_passed = false;
};

thread_local Passage* current_passage = nullptr;

class PassageScope {
 public:
  explicit PassageScope(Passage& passage) : outer_(std::exchange(current_passage, &passage)) {}
  ~PassageScope() { current_passage = outer_; }
  PassageScope(const PassageScope&) = delete;
  PassageScope& operator=(const PassageScope&) = delete;

 private:
  Passage* outer_;
};

/// Where nobody captures, backwards run to their end inside of LibTorch's engine: without the lock.
Lock lock_if_captured() {
  if (num_scopes.load() == 0) return {};
  Lock lock(gate_mutex());
  if (num_scopes.load() == 0) lock.unlock();
  return lock;
}

/// Whether LibTorch's engine refused to begin, since it was just being told whom to call, or since
/// another backward, which came before there was a scope, is on its way without the lock.
bool is_interference(const c10::Error& error) {
  const std::string_view message = error.msg();
  return message.find("compiled_autograd != COMPILED_AUTOGRAD_POISON") != message.npos ||
         message.find("Re-entrant into Compiled Autograd") != message.npos;
}

variable_list pass(Engine& behind, const BackwardCall& call) {
  for (int attempt = 0;; ++attempt) {
    Passage passage;
    passage.lock = lock_if_captured();
    const PassageScope scope(passage);
    try {
      return call.run_in(behind);
    } catch (const c10::Error& error) {
      if (passage.has_passed || attempt == most_attempts || !is_interference(error)) throw;
    }
    std::this_thread::yield();
  }
}

}  // namespace

GateScope::GateScope() {
  front_engine::ensure_installed();
  front_engine::set_gate(&pass);
  const Lock lock(gate_mutex());
  if (num_scopes.load() == 0) Engine::set_compiled_autograd(&run_backward);
  ++num_scopes;
}

GateScope::~GateScope() {
  const Lock lock(gate_mutex());
  if (--num_scopes == 0) Engine::set_compiled_autograd(nullptr);
}

void open_gate() {
  if (current_passage == nullptr) return;
  current_passage->has_passed = true;
  if (current_passage->lock.owns_lock()) current_passage->lock.unlock();
}

}  // namespace ahead::engine
