#include <algorithm>
#include <mutex>

#include "base/generators.h"
#include "observe/recorder/recorder.h"

/// Where the default generators of random numbers stand in an observed call. A function that sets
/// one to where it was before, in the same call, can be repeated from its recording.
namespace ahead::observe {
namespace {

using tracing::GeneratorPosition;

GeneratorPosition position_of(const at::Generator& generator) {
  at::Generator locked = generator;
  const std::lock_guard<std::mutex> lock(locked.mutex());
  return GeneratorPosition(generator);
}

}  // namespace

void Recorder::watch_generators() {
  for (const at::Generator& generator : default_generators()) {
    try {
      generators_.push_back({generator, position_of(generator)});
    } catch (const c10::Error&) {
      continue;  // those of CUDA do not answer while a CUDA graph is captured
    }
    add_mark(generators_.back());
  }
}

void Recorder::add_mark(const WatchedGenerator& watched) {
  tape_->marks.push_back(
      {tape_->steps.size(), watched.generator.device(), watched.last.fingerprint()});
}

/// The last one: what is drawn again may lead to where the generator was before.
std::optional<size_t> Recorder::find_mark(at::Device device, uint64_t fingerprint) const {
  for (size_t i = tape_->marks.size(); i-- > 0;) {
    const GeneratorMark& mark = tape_->marks[i];
    if (mark.device == device && mark.fingerprint == fingerprint) return i;
  }
  return std::nullopt;
}

/// The mark at which a generator had this state, if the tensor is one.
std::optional<size_t> Recorder::find_mark_of(const at::Tensor& state) const {
  for (const WatchedGenerator& watched : generators_) {
    const auto fingerprint = GeneratorPosition::fingerprint_of(state, watched.generator);
    if (!fingerprint) continue;
    if (const auto mark = find_mark(watched.generator.device(), *fingerprint)) return mark;
  }
  return std::nullopt;
}

/// Notes that the function set a generator to where it was. Refuses calls that seed one, or set it
/// to something else, which cannot be repeated. Draws are allowed: other threads may draw
/// meanwhile.
void Recorder::check_generator(WatchedGenerator& watched) {
  const GeneratorPosition now = position_of(watched.generator);
  if (now == watched.last) return;
  if (const auto mark = find_mark(watched.generator.device(), now.fingerprint())) {
    Step step{Step::Kind::GoBack};
    step.number = static_cast<uint32_t>(*mark);
    add(std::move(step));
  } else if (!watched.last.leads_to(now)) {
    refuse(
        "random numbers: the function seeds a generator, or sets a state that a default generator "
        "did not have before in the function. Do so outside.");
  }
  watched.last = now;
}

void Recorder::check_generators() {
  for (WatchedGenerator& watched : generators_) check_generator(watched);
}

void Recorder::note_drawn() {
  for (WatchedGenerator& watched : generators_) {
    GeneratorPosition now = position_of(watched.generator);
    if (now == watched.last) continue;
    watched.last = now;
    add_mark(watched);
  }
}

bool Recorder::goes_back() const {
  return std::any_of(tape_->steps.begin(), tape_->steps.end(),
                     [](const Step& step) { return step.kind == Step::Kind::GoBack; });
}

}  // namespace ahead::observe
