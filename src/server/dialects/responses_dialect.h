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
  // model_name: the name that is returned if the request names none.
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
    std::string id, call_id, name, text;  // text: a call's arguments
    int call = -1;
    bool is_cut = false;  // the answer ended within it, for lack of tokens
  };
  static Json part_json(const Item& item, const std::string& text);
  static Json item_json(const Item& item, bool is_done);
  Json response_json(const char* status) const;
  // Returns the finished response with its items and usage, and stores it unless the request forbids it.
  Json finished(const BatchResult& result);
  std::string event(const char* type, Json fields);
  // Returns an event about the last item and, unless it is a call, its only part.
  std::string item_event(const char* type, Json fields);
  Item& add(Kind kind, const std::string& call_id = "", const std::string& name = "", int call = -1);
  // Returns the events that end the open item and begin the one of the delta; empty if that is open already.
  std::string open(Kind kind, const ChatDelta& delta);
  std::string close();

  const std::string id_;
  const std::int64_t created_;
  std::string model_name_;
  const std::shared_ptr<ResponseStore> store_;
  const Model* model_ = nullptr;  // from parse() on
  ResponsesRequest request_;
  std::vector<Item> items_;
  bool is_open_ = false;  // the last item is open (streams only)
  int n_events_ = 0;
  AnswerCause cause_ = AnswerCause::kStop;
};

}  // namespace winnow::server
