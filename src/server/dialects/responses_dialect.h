// OpenAI's /v1/responses.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "server/dialects/dialect.h"
#include "server/dialects/response_store.h"
#include "server/dialects/responses_request.h"

namespace winnow::server {

class ResponsesDialect : public Dialect {
 public:
  // model_name: what is said where the request names none.
  ResponsesDialect(std::string model_name, std::shared_ptr<ResponseStore> store);

  ApiRequest parse(Json body, const Model& model, const RequestDefaults& defaults) override;
  std::string whole(const std::vector<WholeAnswer>& answers, const BatchResult& result) override;
  std::string begin() override;
  std::string delta(const AnswerDelta& delta) override;
  std::string finish(const AnswerEnd& end) override;
  std::string end(const BatchResult& result) override;
  std::string error(const ApiError& error) override;
  const std::string& id() const override { return id_; }

 private:
  enum class Kind { kReasoning, kMessage, kCall };
  struct Item {
    Kind kind;
    std::string id, call_id, name, text;  // text: of a call its arguments
    int call = -1;
  };
  static Json part_json(const Item& item, const std::string& text);
  static Json item_json(const Item& item, bool is_done);
  Json response_json(const char* status) const;
  // With the items and what they took. Stores it.
  Json finished(const BatchResult& result);
  std::string event(const char* type, Json fields);
  // An event about the item that was opened last, and, unless it is a call's, its only part.
  std::string item_event(const char* type, Json fields);
  Item& add(Kind kind, const std::string& call_id = "", const std::string& name = "", int call = -1);
  // The item that what comes belongs to: where it is another one, the events that end the last and begin it.
  std::string open(Kind kind, const ChatDelta& delta);
  std::string close();

  const std::string id_;
  const std::int64_t created_;
  std::string model_name_;
  const std::shared_ptr<ResponseStore> store_;
  const Model* model_ = nullptr;  // from parse() on
  ResponsesRequest request_;
  std::vector<Item> items_;
  bool is_open_ = false;  // the last of them, in a stream
  int n_events_ = 0;
  AnswerCause cause_ = AnswerCause::kStop;
};

}  // namespace winnow::server
