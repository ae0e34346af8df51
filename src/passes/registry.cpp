#include <algorithm>

#include "ahead/errors.h"
#include "ahead/passes.h"

namespace ahead::passes {

const std::vector<Pass>& all() {
  static const std::vector<Pass>* passes = new std::vector<Pass>{
      {"inline_calls", inline_calls, "puts sub-graphs in place of their calls"},
      {"clean_views", clean_views, "drops views and copies that change nothing"},
      {"fold_constants", fold_constants, "uses numbers instead of tensors full of them"},
      {"eliminate_common_subexpressions", eliminate_common_subexpressions,
       "computes equal calls once"},
      {"eliminate_dead_code", eliminate_dead_code, "removes nodes whose results nobody uses"},
      {"reinplace_mutations", reinplace_mutations, "writes to inputs in place rather than by copy"},
      {"write_inputs_early", write_inputs_early, "writes to inputs as soon as that can be done"},
  };
  return *passes;
}

size_t run_pass(std::string_view name, Graph& graph) {
  const auto found =
      std::find_if(all().begin(), all().end(), [&](const Pass& pass) { return pass.name == name; });
  if (found != all().end()) return found->run(graph);
  std::string names;
  for (const Pass& pass : all()) names.append(names.empty() ? "" : ", ").append(pass.name);
  throw UserError(
      "passes", "\"" + std::string(name) + "\": there is no such pass. Use one of " + names + ".");
}

}  // namespace ahead::passes
