#include "onehot/embedding.h"

#include "array.h"
#include "keywords.h"
#include "run.h"

namespace onehot::python {
namespace {

void Forward(nb::handle weight, nb::handle indices, nb::handle out) {
  const In weight_array(weight, "weight"), indices_array(indices, "indices");
  const Out out_array(out, "out");
  Run(Prepare(Embedding{weight_array, indices_array, out_array}));
}

void Backward(nb::handle grad, nb::handle indices, nb::handle out, const nb::kwargs& options) {
  Keywords keywords(options, "embedding_backward");
  const In grad_array(grad, "grad"), indices_array(indices, "indices");
  const Out out_array(out, "out");
  EmbeddingBackward problem{grad_array, indices_array, out_array};
  problem.counts = keywords.Out<"counts">();
  problem.padding_idx = keywords.MaybeInteger<"padding_idx">();
  problem.scale_grad_by_freq = keywords.Flag<"scale_grad_by_freq">(false);
  problem.accumulate = keywords.Flag<"accumulate">(false);
  keywords.End();
  Run(Prepare(problem));
}

}  // namespace

void BindEmbedding(nb::module_& module) {
  module.def("embedding", &Forward, nb::arg("weight"), nb::arg("indices"), nb::arg("out"));
  module.def("embedding_backward", &Backward, nb::arg("grad"), nb::arg("indices"), nb::arg("out"), nb::arg("options"));
}

}  // namespace onehot::python
