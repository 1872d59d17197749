// From a problem to a plan: the first implementation in an operator's list that accepts the problem.
#ifndef ONEHOT_SELECT_SELECT_H_
#define ONEHOT_SELECT_SELECT_H_

#include <array>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "core/plan_body.h"
#include "onehot/plan.h"
#include "onehot/status.h"
#include "ops/annotate.h"
#include "select/environment.h"

namespace onehot::select {

// One implementation of operator Op. `refuse` gives the reason why it cannot take the problem, or ""; isa is the best
// instruction set that may be used. `plan` may assume that Check passed and that `refuse` had no reason.
template <class Op>
struct Implementation {
  std::string_view name;
  std::string_view (*refuse)(const Op& op, Isa isa);
  std::unique_ptr<PlanBody> (*plan)(const Op& op, Isa isa);
};

// The lists, best first, "ref" last. Tests walk them, so a row is tested by being there.
template <class Op>
std::span<const Implementation<Op>> Implementations();

Status UnknownForced(std::string_view operator_name, std::string_view forced,
                     const std::vector<std::string_view>& known);
Status ForcedRefuses(std::string_view operator_name, std::string_view forced, std::string_view refusal);
void Log(std::string_view operator_name, std::string_view implementation, std::string_view verdict);

template <class Op>
std::vector<std::string_view> ImplementationNames() {
  std::vector<std::string_view> names;
  for (const auto& row : Implementations<Op>()) names.push_back(row.name);
  return names;
}

// The walk. Op has passed Check.
template <class Op>
Result<Plan> Choose(const Op& op, std::string_view operator_name) {
  Result<Environment> environment = ReadEnvironment();
  if (!environment.ok()) return environment.status();
  const std::string_view forced = environment->force;

  std::array<Considered, 8> refused;
  std::size_t refusals = 0;
  for (const Implementation<Op>& row : Implementations<Op>()) {
    std::string_view refusal;
    if (!forced.empty() && forced != row.name) {
      refusal = "ONEHOT_FORCE names another";
    } else {
      refusal = row.refuse(op, environment->max_isa);
      if (!forced.empty() && !refusal.empty()) return ForcedRefuses(operator_name, forced, refusal);
    }
    if (environment->log) Log(operator_name, row.name, refusal.empty() ? "taken" : refusal);
    if (refusal.empty()) {
      std::unique_ptr<PlanBody> body = row.plan(op, environment->max_isa);
      Annotate(op, *body);
      for (const Considered& earlier : std::span(refused).first(refusals))
        body->NoteConsidered(earlier.implementation, earlier.refusal);
      body->NoteConsidered(row.name, "");
      return Plan(std::move(body));
    }
    if (refusals < refused.size() - 1) refused[refusals++] = {row.name, refusal};
  }
  return UnknownForced(operator_name, forced, ImplementationNames<Op>());
}

}  // namespace onehot::select

#endif  // ONEHOT_SELECT_SELECT_H_
