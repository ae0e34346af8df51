#include "partition/max_flow.h"

#include <algorithm>

namespace ahead::partition {

int32_t MaxFlow::add_node() {
  return num_nodes_++;
}

void MaxFlow::add_edge(int32_t from, int32_t to, int64_t capacity) {
  edges_.push_back({from, to, std::min(capacity, kInfinite)});
}

void MaxFlow::build() {
  const auto count = static_cast<size_t>(num_nodes_);
  first_arc_.assign(count + 1, 0);
  for (const Edge& edge : edges_) {
    ++first_arc_[static_cast<size_t>(edge.from) + 1];
    ++first_arc_[static_cast<size_t>(edge.to) + 1];
  }
  for (size_t i = 0; i < count; ++i) first_arc_[i + 1] += first_arc_[i];
  arcs_.resize(edges_.size() * 2);
  std::vector<int32_t> next(first_arc_.begin(), first_arc_.end() - 1);
  for (const Edge& edge : edges_) {
    const int32_t forward = next[static_cast<size_t>(edge.from)]++;
    const int32_t backward = next[static_cast<size_t>(edge.to)]++;
    arcs_[static_cast<size_t>(forward)] = {edge.to, backward, edge.capacity};
    arcs_[static_cast<size_t>(backward)] = {edge.from, forward, 0};
  }
}

bool MaxFlow::find_levels(int32_t source, int32_t sink) {
  level_.assign(static_cast<size_t>(num_nodes_), -1);
  level_[static_cast<size_t>(source)] = 0;
  std::vector<int32_t> queue{source};
  for (size_t head = 0; head < queue.size(); ++head) {
    const auto node = static_cast<size_t>(queue[head]);
    for (int32_t i = first_arc_[node]; i < first_arc_[node + 1]; ++i) {
      const Arc& arc = arcs_[static_cast<size_t>(i)];
      int32_t& level = level_[static_cast<size_t>(arc.to)];
      if (arc.residual == 0 || level >= 0) continue;
      level = level_[node] + 1;
      queue.push_back(arc.to);
    }
  }
  return level_[static_cast<size_t>(sink)] >= 0;
}

/// Fills one path from the source to the sink along rising levels; returns its flow, 0 if there is
/// no path left.
int64_t MaxFlow::augment(int32_t source, int32_t sink) {
  std::vector<int32_t> path;  // arcs
  int32_t node = source;
  while (node != sink) {
    int32_t& i = current_arc_[static_cast<size_t>(node)];
    const int32_t end = first_arc_[static_cast<size_t>(node) + 1];
    const int32_t next_level = level_[static_cast<size_t>(node)] + 1;
    while (i < end && (arcs_[static_cast<size_t>(i)].residual == 0 ||
                       level_[static_cast<size_t>(arcs_[static_cast<size_t>(i)].to)] != next_level))
      ++i;
    if (i < end) {
      path.push_back(i);
      node = arcs_[static_cast<size_t>(i)].to;
      continue;
    }
    if (path.empty()) return 0;
    level_[static_cast<size_t>(node)] = -1;
    const Arc& last = arcs_[static_cast<size_t>(path.back())];
    node = arcs_[static_cast<size_t>(last.reverse)].to;
    path.pop_back();
  }
  int64_t flow = kInfinite;
  for (int32_t i : path) flow = std::min(flow, arcs_[static_cast<size_t>(i)].residual);
  for (int32_t i : path) {
    Arc& arc = arcs_[static_cast<size_t>(i)];
    arc.residual -= flow;
    arcs_[static_cast<size_t>(arc.reverse)].residual += flow;
  }
  return flow;
}

int64_t MaxFlow::run(int32_t source, int32_t sink) {
  build();
  int64_t total = 0;
  while (find_levels(source, sink)) {
    current_arc_.assign(first_arc_.begin(), first_arc_.end() - 1);
    while (const int64_t flow = augment(source, sink)) {
      total += flow;
      // A path of edges that are never cut: no cut exists.
      if (total >= kInfinite) return kInfinite;
    }
  }
  return total;
}

std::vector<bool> MaxFlow::sink_side(int32_t sink) const {
  std::vector<bool> reaches(static_cast<size_t>(num_nodes_));
  reaches[static_cast<size_t>(sink)] = true;
  std::vector<int32_t> pending{sink};
  while (!pending.empty()) {
    const auto node = static_cast<size_t>(pending.back());
    pending.pop_back();
    for (int32_t i = first_arc_[node]; i < first_arc_[node + 1]; ++i) {
      const Arc& arc = arcs_[static_cast<size_t>(i)];
      const auto from = static_cast<size_t>(arc.to);
      if (reaches[from] || arcs_[static_cast<size_t>(arc.reverse)].residual == 0) continue;
      reaches[from] = true;
      pending.push_back(arc.to);
    }
  }
  return reaches;
}

}  // namespace ahead::partition
