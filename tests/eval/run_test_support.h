// Samples and models for the tests of the runner.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "eval/run/result_store.h"
#include "eval/run/runner.h"
#include "model/tiny_model.h"
#include "winnow/error.h"

namespace winnow::test {

inline std::shared_ptr<const Model> chat_model() {
  const TinyModel file({.chat_template = kChatmlTemplate});
  return Model::load(file.path());
}

// Returns a text of about n tokens of the tiny model, which are bytes.
inline std::string text_of(int n, int seed) {
  std::string text;
  for (int i = 0; i < n; ++i) text += static_cast<char>('a' + (i * 7 + i / 11 + seed * 3) % 26);
  return text;
}

inline eval::WorkItem work_item(int number, eval::QuestionMode mode, int n_text = 200) {
  eval::WorkItem item{.benchmark = "made-up", .mode = mode};
  item.sample.id = "s" + std::to_string(number);
  item.sample.task = "task";
  item.sample.context = text_of(n_text, number);
  item.sample.turns = {{.question = " what is it? ", .answer_prefix = "It is", .references = {"xyz"}, .max_new = 6}};
  return item;
}

inline std::vector<const eval::WorkItem*> pointers(const std::vector<eval::WorkItem>& items) {
  std::vector<const eval::WorkItem*> all;
  for (const eval::WorkItem& item : items) all.push_back(&item);
  return all;
}

}  // namespace winnow::test
