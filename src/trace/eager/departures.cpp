#include "trace/eager/departures.h"

#include "trace/eager/decompositions.h"
#include "trace/eager/eager_formulas.h"
#include "trace/eager/expand.h"
#include "trace/eager/hidden_mutations.h"
#include "trace/eager/in_place.h"
#include "trace/eager/list_mutations.h"

namespace ahead::tracing {
namespace {

/// Names are set as code, kinds of calls as text.
std::string marked_up(const std::string& subject) {
  return subject.find(' ') == std::string::npos ? "`" + subject + "`" : subject;
}

}  // namespace

Departures departures() {
  Departures all;
  for (auto list : {&decomposition_departures, &formula_departures, &hidden_mutation_departures,
                    &list_mutation_departures, &expand_departures, &in_place_departures}) {
    for (Departure& departure : list()) all.push_back(std::move(departure));
  }
  return all;
}

std::string departures_section() {
  std::string text =
      "## What is done otherwise than LibTorch does it\n\n"
      "So that a graph gives what eager gives. The rows are those of the tables that the files of\n"
      "`src/trace/eager/` run by; a test compares.\n\n"
      "| operator or node | file | what is done | reason |\n|---|---|---|---|\n";
  for (const Departure& departure : departures()) {
    text += "| " + marked_up(departure.subject) + " | `" + departure.file + "` | " +
            departure.instead + " | " + departure.reason + " |\n";
  }
  return text;
}

}  // namespace ahead::tracing
