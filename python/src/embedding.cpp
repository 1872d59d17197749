#include "onehot/embedding.h"

#include "arguments.h"
#include "run.h"

namespace onehot::python {
namespace {

void Forward(Arguments& arguments) {
  Embedding problem;
  problem.weight = arguments.In<"weight">();
  problem.indices = arguments.In<"indices">();
  problem.out = arguments.Out<"out">();
  Run(arguments.PlanFor(problem));
}

void Backward(Arguments& arguments) {
  EmbeddingBackward problem;
  problem.grad = arguments.In<"grad">();
  problem.indices = arguments.In<"indices">();
  problem.out = arguments.Out<"out">();
  problem.counts = arguments.MaybeOut<"counts">();
  problem.padding_idx = arguments.MaybeInteger<"padding_idx">();
  problem.scale_grad_by_freq = arguments.Flag<"scale_grad_by_freq">(false);
  problem.accumulate = arguments.Flag<"accumulate">(false);
  Run(arguments.PlanFor(problem));
}

}  // namespace

void BindEmbedding(nb::module_& module) {
  static PyMethodDef methods[] = {
      Method<"embedding", &Forward>("embedding($module, weight, indices, out)\n--\n\n"),
      Method<"embedding_backward", &Backward>("embedding_backward($module, grad, indices, out, **options)\n--\n\n"),
      {}};
  Add(module, methods);
}

}  // namespace onehot::python
