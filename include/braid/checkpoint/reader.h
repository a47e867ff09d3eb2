// SPDX-License-Identifier: BSD-3-Clause
// Reads a checkpoint that any number of ranks wrote, in any layout, into the tensors that this rank
// wants: whole ones or pieces, of any dtype, on any device.
//
//   checkpoint::Reader reader("runs/demo/checkpoints/step-00001200");
//   reader.fill(wanted);   // a State with tensors to fill, and pieces where they are not whole
//
// Only what overlaps is read, in small pieces straight into the wanted tensors, and checked against
// the hashes of the manifest. After an error the wanted tensors hold nothing of use.
#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "braid/core/state.h"

namespace braid::checkpoint {

struct Stored {
  c10::ScalarType dtype = c10::kFloat;
  std::vector<int64_t> shape;  // of the whole tensor
};

struct Catalog;

class Reader {
 public:
  // A checkpoint folder. Throws StorageError if its manifest is missing or broken.
  explicit Reader(const std::filesystem::path& dir);
  // Anything that holds weights: a checkpoint, a run folder (its newest checkpoint), a .safetensors
  // file, a folder of such files as Hugging Face has them. Names are those of a checkpoint,
  // "model/transformer.wte.weight"; GPT-2 and Llama files may lack the prefix of the body.
  static Reader open(const std::filesystem::path& any);
  ~Reader();
  Reader(Reader&&) noexcept;
  Reader& operator=(Reader&&) noexcept;

  const std::filesystem::path& dir() const;
  bool is_checkpoint() const;  // else weights alone
  int64_t step() const;
  int64_t world() const;  // ranks that wrote it
  const std::map<std::string, double>& metrics() const;
  const std::map<std::string, std::string>& values() const;
  std::string config() const;              // resolved YAML of the run; "" if there is none
  std::vector<std::string> files() const;  // names of those without tensors: config.yaml, ...
  // Checked against its hash; "" if there is none of this name. Throws StorageError.
  std::string file(const std::string& name) const;
  const std::map<std::string, Stored>& tensors() const;
  bool has(const std::string& name) const { return tensors().contains(name); }

  // Fills the tensors of `wanted`. Numbers are converted to the dtype that is wanted; a master copy
  // ("optimizer/<name>/master") that was not saved is taken from the weights, and weights wanted in
  // a wider dtype than saved from their master copy. Throws StorageError if one is not there, has
  // another shape or does not match its hash.
  void fill(const State& wanted) const;
  at::Tensor whole(const std::string& name) const;  // on the CPU, in the dtype it was saved in

 private:
  explicit Reader(std::unique_ptr<Catalog> catalog);
  std::unique_ptr<Catalog> catalog_;
};

}  // namespace braid::checkpoint
