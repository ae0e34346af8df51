#pragma once

#include <c10/util/intrusive_ptr.h>

#include <atomic>
#include <memory>

#include "ahead/trace.h"
#include "trace/graph_writer.h"
#include "trace/observers/backward_casts.h"
#include "trace/observers/checkpoint_tags.h"
#include "trace/observers/fragile_views.h"
#include "trace/observers/generator_watch.h"
#include "trace/observers/hidden_writes.h"
#include "trace/observers/list_writes.h"
#include "trace/observers/live_tensors.h"
#include "trace/observers/places.h"
#include "trace/outside.h"
#include "trace/size_reads.h"

namespace ahead::tracing {

/// One run of the user's code, being written down as a graph.
///
/// Fake tensors hold their tracer, so that it is found on any thread and outlives its trace; after
/// close() it only serves to explain what went wrong.
class Tracer : public c10::intrusive_ptr_target {
 public:
  explicit Tracer(TraceOptions options);

  /// The tracer of the running trace, also on the engine's device threads; null outside of one.
  static Tracer* current();

  const TraceOptions& options() const { return options_; }
  /// Whether the trace was begun in inference mode. It runs outside of it, since LibTorch cannot
  /// make functional views there; the graph's caller gets inference tensors by itself.
  bool in_inference_mode() const { return in_inference_mode_; }

  /// The graph being written.
  GraphWriter& writer() { return writer_; }
  const GraphWriter& writer() const { return writer_; }
  /// The tensors from outside.
  Outside& outside() { return outside_; }
  const Outside& outside() const { return outside_; }
  /// The sizes that are read from tensors.
  SizeReads& size_reads() { return size_reads_; }

  /// What is noted beside the graph, each by a class of its own.
  BackwardCasts& casts() { return casts_; }
  Checkpoints& checkpoints() { return checkpoints_; }
  FragileViews& fragile_views() { return fragile_views_; }
  GeneratorWatch& generators() { return generators_; }
  HiddenWrites& hidden_writes() { return hidden_writes_; }
  ListWrites& list_writes() { return list_writes_; }
  LiveTensors& live_tensors() { return live_tensors_; }
  Places& places() { return places_; }

  bool is_closed() const { return closed_; }
  /// Ends the trace and gives the graph away.
  Graph close();

 private:
  const TraceOptions options_;
  const bool in_inference_mode_;
  std::atomic<bool> closed_ = false;
  GraphWriter writer_{*this};
  Outside outside_{*this};
  SizeReads size_reads_{*this};
  BackwardCasts casts_;
  Checkpoints checkpoints_;
  FragileViews fragile_views_;
  GeneratorWatch generators_{writer_};
  HiddenWrites hidden_writes_;
  ListWrites list_writes_;
  LiveTensors live_tensors_;
  Places places_{options_.record_places};
};

/// Makes a tracer current, puts the tracing keys into effect, and undoes both at the end.
class TraceScope {
 public:
  explicit TraceScope(Tracer& tracer);
  ~TraceScope();
  TraceScope(const TraceScope&) = delete;
  TraceScope& operator=(const TraceScope&) = delete;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ahead::tracing
