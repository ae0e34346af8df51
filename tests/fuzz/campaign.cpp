#include "fuzz/campaign.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>

#include "fuzz/compiled.h"
#include "fuzz/draft.h"
#include "fuzz/engine.h"
#include "fuzz/shrink.h"

namespace ahead::fuzz {
namespace {

volatile std::sig_atomic_t crashed = 0;
uint64_t current_seed = 0;
std::string current_program;

void on_crash(int signal) {
  if (crashed == 0) {
    crashed = 1;
    char text[96];
    const int length =
        std::snprintf(text, sizeof(text), "\nsignal %d while at AHEAD_FUZZ_SEED=%llu\n", signal,
                      static_cast<unsigned long long>(current_seed));
    if (write(STDERR_FILENO, text, static_cast<size_t>(length)) < 0) std::_Exit(1);
    if (write(STDERR_FILENO, current_program.data(), current_program.size()) < 0) std::_Exit(1);
  }
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

/// A message without the parts that differ from program to program.
std::string reason_of(const std::string& message) {
  std::string reason;
  for (char c : message.substr(0, 200)) {
    if (std::isdigit(static_cast<unsigned char>(c)) == 0)
      reason += c;
    else if (reason.empty() || reason.back() != '#')
      reason += '#';
  }
  return reason;
}

/// What programs with the same cause usually have in common.
std::string signature(const Program& program, const Verdict& verdict) {
  if (verdict.what.find("throw") != std::string::npos) return reason_of(verdict.detail);
  std::set<std::string> calls;
  for (const Instruction& line : program.body) calls.insert(line.operation->call.text);
  std::string text = verdict.what;
  for (const std::string& call : calls) text += "|" + call;
  return text;
}

std::string percent(uint64_t part, uint64_t whole) {
  char text[32];
  std::snprintf(
      text, sizeof(text), "%.1f%%",
      100.0 * static_cast<double>(part) / static_cast<double>(std::max<uint64_t>(whole, 1)));
  return text;
}

}  // namespace

void print_seed_on_crash() {
  for (int signal : {SIGSEGV, SIGABRT, SIGFPE, SIGBUS}) std::signal(signal, on_crash);
}

Mode traced_mode() {
  return {{}, [](const Program& program) { return check(program); }};
}

Mode compiled_mode() {
  return {{.sharing = Sharing::Often}, check_compiled};
}

Mode native_mode() {
  return {{.sharing = Sharing::Often}, check_native};
}

Mode effects_mode() {
  return {{.sharing = Sharing::Often, .effects = true}, check_compiled};
}

Mode sizes_mode() {
  return {{.call_numbers = true}, check_sizes};
}

Mode captured_sizes_mode() {
  return {{.call_numbers = true}, check_captured_sizes};
}

Mode wrappers_mode() {
  return {{.sharing = Sharing::Often, .wrappers = true}, check_compiled};
}

Mode sized_wrappers_mode() {
  return {{.wrappers = true, .call_numbers = true}, check_sizes};
}

Mode engine_mode() {
  return {{}, check_engine};
}

Mode engine_effects_mode() {
  return {{.effects = true}, check_engine};
}

void Campaign::run(uint64_t seed) {
  current_seed = seed;
  const Program program = generate(seed, mode_.dialect);
  current_program = program.str();
  const Verdict verdict = check(program);
  ++programs_;
  switch (verdict.kind) {
    case Verdict::Kind::Agrees:
      break;
    case Verdict::Kind::BothThrow:
      ++both_throw_;
      break;
    case Verdict::Kind::Unsupported:
      ++unsupported_;
      ++reasons_.try_emplace(reason_of(verdict.what), Reason{0, seed}).first->second.count;
      break;
    case Verdict::Kind::Differs:
      ++differing_;
      report(program, verdict);
      break;
  }
}

Verdict Campaign::check(const Program& program) const {
  try {
    return mode_.check(program);
  } catch (const std::exception& error) {
    return {Verdict::Kind::Differs, "check throws", error.what(), ""};
  }
}

void Campaign::report(const Program& program, const Verdict& verdict) {
  const Program minimal = shrink(program, [&](const Program& candidate) {
    current_program = candidate.str();
    const Verdict again = check(candidate);
    return again.kind == Verdict::Kind::Differs && again.what == verdict.what;
  });
  const Verdict final = check(minimal);
  if (!reported_.insert(signature(minimal, final)).second) return;
  ADD_FAILURE() << "AHEAD_FUZZ_SEED=" << program.seed << " differs: " << final.what << "\n"
                << final.detail << "\n\n"
                << minimal.str() << "\n"
                << final.graph;
}

std::string Campaign::smallest_refused(uint64_t seed) const {
  const Program program = generate(seed, mode_.dialect);
  const Verdict verdict = check(program);
  if (verdict.kind != Verdict::Kind::Unsupported) return "";
  const Program minimal = shrink(program, [&](const Program& candidate) {
    const Verdict again = check(candidate);
    return again.kind == verdict.kind && reason_of(again.what) == reason_of(verdict.what);
  });
  return check(minimal).what + "\n\n" + minimal.str();
}

double Campaign::unsupported_share() const {
  return static_cast<double>(unsupported_) / static_cast<double>(std::max<uint64_t>(programs_, 1));
}

std::string Campaign::progress() const {
  return std::to_string(programs_) + " programs, " + std::to_string(differing_) + " differ, " +
         percent(unsupported_, programs_) + " unsupported, " + percent(both_throw_, programs_) +
         " throw in eager too";
}

std::string Campaign::summary() const {
  std::vector<std::pair<std::string, Reason>> sorted(reasons_.begin(), reasons_.end());
  std::stable_sort(sorted.begin(), sorted.end(), [](const auto& left, const auto& right) {
    return left.second.count > right.second.count;
  });
  std::string text = progress() + "\n";
  for (const auto& [why, reason] : sorted) {
    text += "  " + std::to_string(reason.count) + "  " + why + " (first: seed " +
            std::to_string(reason.first_seed) + ")\n";
  }
  return text;
}

}  // namespace ahead::fuzz
