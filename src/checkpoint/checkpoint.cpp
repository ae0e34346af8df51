#include "ahead/checkpoint.h"

#include <ATen/core/grad_mode.h>
#include <c10/core/InferenceMode.h>

#include <optional>
#include <string>

#include "ahead/detail/compiled_core.h"
#include "ahead/errors.h"
#include "checkpoint/eager_checkpoint.h"
#include "observe/recorder/recorder.h"
#include "trace/observers/checkpoint_tags.h"
#include "trace/tracer.h"

namespace ahead::detail {

struct CheckpointScope::State {
  std::optional<tracing::CheckpointTags> tags;
  std::shared_ptr<runtime::CheckpointFrame> frame;
  std::optional<runtime::CheckpointFrame::FirstRun> first_run;
  observe::Recorder* recorder = nullptr;
};

Saving checked(Saving saving) {
  if (saving <= Saving::MustRecompute) return saving;
  throw UserError("checkpoint", "Saving: there is no enumerator of value " +
                                    std::to_string(static_cast<int>(saving)) + ".");
}

bool is_checkpointing(const CheckpointPolicy& policy) {
  if (tracing::Tracer::current() != nullptr || observe::Recorder::current() != nullptr) return true;
  const bool saves_everything = policy.is_uniform() && (policy.all() == Saving::MustSave ||
                                                        policy.all() == Saving::PreferSave);
  return !saves_everything && at::GradMode::is_enabled() && !c10::InferenceMode::is_enabled();
}

CheckpointScope::CheckpointScope(const CheckpointPolicy& policy,
                                 const std::vector<at::Tensor>& leaves, RepeatedCall again)
    : state_(std::make_unique<State>()) {
  if (tracing::Tracer* tracer = tracing::Tracer::current()) {
    state_->tags.emplace(tracer->checkpoints(), policy);
  } else {
    if (observe::Recorder* recorder = observe::Recorder::current()) {
      state_->recorder = recorder;
      recorder->enter_checkpoint(policy);
      if (!at::GradMode::is_enabled() || c10::InferenceMode::is_enabled()) return;
    }
    const observe::RecordingPause unseen;
    state_->frame = std::make_shared<runtime::CheckpointFrame>(policy, leaves, std::move(again));
    state_->first_run.emplace(*state_->frame);
  }
}

CheckpointScope::~CheckpointScope() = default;

void CheckpointScope::finish(const std::vector<at::Tensor>& results) {
  if (state_->tags) state_->tags->finish(results);
  state_->first_run.reset();
  if (state_->frame != nullptr) state_->frame->rethrow_problem();
  if (state_->recorder != nullptr) state_->recorder->leave_checkpoint(results);
}

}  // namespace ahead::detail
