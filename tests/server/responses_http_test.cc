// /v1/responses over HTTP, with Qwen3's template on a tiny model whose answers a grammar forces.
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "server/dialects/response_store.h"
#include "server/dialects/responses_request.h"
#include "server/http_test_support.h"

namespace winnow::server {
namespace {

class ResponsesHttpTest : public QwenHttpTest {
 protected:
  Json ask(const Json& body) { return answer_to("/v1/responses", body); }
  std::vector<Json> events(Json body) {
    body["stream"] = true;
    const auto answer = post("/v1/responses", body.dump());
    EXPECT_EQ(answer->status, 200) << answer->body;
    std::vector<Json> all;
    std::istringstream lines(answer->body);
    for (std::string line; std::getline(lines, line);) {
      if (!line.starts_with("data: ")) continue;
      all.push_back(Json::parse(line.substr(6)));
      EXPECT_EQ(all.back()["sequence_number"], all.size() - 1);
    }
    return all;
  }
  static Json say(const Json& input, const std::string& grammar = R"(root ::= "so it is")") {
    return {{"model", "m"}, {"max_output_tokens", 200}, {"grammar", grammar}, {"input", input}};
  }
  static Json with_tools() {
    return {{"input", "Weather?"},
            {"max_output_tokens", 200},
            {"chat_template_kwargs", {{"enable_thinking", false}}},
            {"parallel_tool_calls", false},
            {"tool_choice", "required"},
            {"tools", Json::parse(R"([{"type":"function","name":"weather","description":"of a city","strict":true,
              "parameters":{"type":"object","properties":{"city":{"enum":["Oslo","Rome"]}},"required":["city"],
                            "additionalProperties":false}},{"type":"web_search"},{"type":"file_search"}])")}};
  }
};

TEST_F(ResponsesHttpTest, Text) {
  start();
  const Json answer = ask(say("the hat"));
  EXPECT_EQ(answer["object"], "response");
  EXPECT_EQ(answer["status"], "completed");
  EXPECT_EQ(answer["model"], "m");
  ASSERT_EQ(answer["output"].size(), 1U);
  const Json& message = answer["output"][0];
  EXPECT_EQ(message["type"], "message");
  EXPECT_EQ(message["content"][0]["type"], "output_text");
  EXPECT_EQ(message["content"][0]["text"], "so it is");
  EXPECT_GT(answer["usage"]["input_tokens"], 0);
  EXPECT_EQ(answer["usage"]["total_tokens"],
            answer["usage"]["input_tokens"].get<int>() + answer["usage"]["output_tokens"].get<int>());
  Json body = say("the hat");
  body["max_output_tokens"] = 1;
  const Json cut = ask(body);
  EXPECT_EQ(cut["status"], "incomplete");
  EXPECT_EQ(cut["incomplete_details"]["reason"], "max_output_tokens");
}

// What is cut off says so, and an unfinished call is not shown to the model later.
TEST_F(ResponsesHttpTest, WhatIsCutOffIsIncomplete) {
  start();
  Json text = say("the hat"), call = with_tools();
  text["max_output_tokens"] = 1;
  // As many tokens as it takes to write the call's name and the beginning of its arguments.
  call["max_output_tokens"] = 5;
  for (int n = 10; n < 100 && ask(call)["output"].empty(); n += 5) call["max_output_tokens"] = n;
  for (Json* body : {&text, &call}) {
    const Json cut = ask(*body);
    EXPECT_EQ(cut["status"], "incomplete");
    ASSERT_EQ(cut["output"].size(), 1U) << cut;
    EXPECT_EQ(cut["output"][0]["status"], "incomplete") << cut;
    const std::vector<Json> all = events(*body);
    EXPECT_EQ(all[all.size() - 2]["item"]["status"], "incomplete") << all[all.size() - 2];
    EXPECT_EQ(all.back()["response"]["output"][0]["status"], "incomplete");
    // The conversation goes on, from the response as well as from its items.
    Json next = say("go on");
    next["previous_response_id"] = cut["id"];
    EXPECT_EQ(ask(next)["status"], "completed");
    next.erase("previous_response_id");
    next["input"] = Json::array({{{"role", "user"}, {"content", "Weather?"}}, cut["output"][0]});
    next["input"].push_back({{"role", "user"}, {"content", "go on"}});
    EXPECT_EQ(ask(next)["status"], "completed");
  }
  EXPECT_EQ(ask(say("the hat"))["output"][0]["status"], "completed");
  ResponseStore store;
  const ResponsesRequest request = translate_responses(Json::parse(R"({"input":[{"role":"user","content":"a"},
      {"type":"function_call","call_id":"1","name":"f","arguments":"{\"x\": ","status":"incomplete"},
      {"role":"user","content":"b"}]})"),
                                                       store);
  EXPECT_EQ(request.messages.size(), 2U) << request.messages;
  EXPECT_EQ(request.body.warnings.size(), 1U);
}

TEST_F(ResponsesHttpTest, GoesOnFromAResponse) {
  start();
  const auto n_tokens = [](const Json& answer) { return answer["usage"]["input_tokens"].get<int>(); };
  Json first = say("the hat");
  first["instructions"] = "Be brief.";
  const Json one = ask(first);
  EXPECT_EQ(one["instructions"], "Be brief.");
  Json next = say("and the cat");
  next["previous_response_id"] = one["id"];
  const Json two = ask(next);
  // Instructions are not carried over, but the conversation is.
  const Json whole = ask(say(Json::parse(R"([{"role":"user","content":"the hat"},
      {"type":"message","role":"assistant","content":[{"type":"output_text","text":"so it is"}]},
      {"role":"user","content":[{"type":"input_text","text":"and the cat"}]}])")));
  EXPECT_EQ(n_tokens(two), n_tokens(whole));
  EXPECT_EQ(two["previous_response_id"], one["id"]);
  // A streamed response can be continued as well.
  const Json three = events(next).back()["response"];
  next["previous_response_id"] = three["id"];
  EXPECT_GT(n_tokens(ask(next)), n_tokens(three));

  const std::string id = one["id"];
  EXPECT_EQ(Json::parse(client().Get("/v1/responses/" + id)->body), one);
  EXPECT_EQ(client().Delete("/v1/responses/" + id)->status, 200);
  EXPECT_EQ(client().Get("/v1/responses/" + id)->status, 404);
  next["previous_response_id"] = id;
  const auto gone = post("/v1/responses", next.dump());
  EXPECT_EQ(gone->status, 404);
  EXPECT_EQ(Json::parse(gone->body)["error"]["code"], "previous_response_not_found");
  first["store"] = false;
  EXPECT_EQ(client().Get("/v1/responses/" + ask(first)["id"].get<std::string>())->status, 404);
}

TEST_F(ResponsesHttpTest, StreamOfText) {
  start();
  const std::vector<Json> all = events(say("the hat"));
  std::vector<std::string> types;
  std::string text;
  for (const Json& event : all) {
    if (types.empty() || types.back() != event["type"]) types.push_back(event["type"]);
    if (event["type"] == "response.output_text.delta") text += event["delta"];
  }
  EXPECT_EQ(types, (std::vector<std::string>{"response.created", "response.in_progress", "response.output_item.added",
                                             "response.content_part.added", "response.output_text.delta",
                                             "response.output_text.done", "response.content_part.done",
                                             "response.output_item.done", "response.completed"}));
  EXPECT_EQ(text, "so it is");
  EXPECT_EQ(all.back()["response"]["output"][0]["content"][0]["text"], text);
  EXPECT_EQ(all.back()["response"]["id"], all.front()["response"]["id"]);
}

TEST_F(ResponsesHttpTest, ThoughtsAreAnItem) {
  start();
  Json body = say("a", "root ::= \"<think>\\nwhy\\n</think>\\n\\nso\"");
  body["chat_template_kwargs"] = {{"enable_thinking", true}};
  const Json answer = ask(body);
  ASSERT_EQ(answer["output"].size(), 2U);
  EXPECT_EQ(answer["output"][0]["type"], "reasoning");
  EXPECT_EQ(answer["output"][0]["content"][0]["text"], "why\n");
  EXPECT_EQ(answer["output"][1]["content"][0]["text"], "so");
  EXPECT_GT(answer["usage"]["output_tokens_details"]["reasoning_tokens"], 0);
  std::string thoughts;
  for (const Json& event : events(body)) {
    if (event["type"] == "response.reasoning_text.delta") thoughts += event["delta"];
  }
  EXPECT_EQ(thoughts, "why\n");
  // The output can be sent back as input.
  body["input"] = answer["output"];
  body["input"].push_back({{"role", "user"}, {"content", "b"}});
  ask(body);
}

TEST_F(ResponsesHttpTest, CallAnswerCall) {
  start();
  Json body = with_tools();
  const Json one = ask(body);
  ASSERT_EQ(one["output"].size(), 1U);
  const Json& call = one["output"][0];
  EXPECT_EQ(call["type"], "function_call");
  EXPECT_EQ(call["name"], "weather");
  EXPECT_TRUE(Json::parse(call["arguments"].get<std::string>()).contains("city"));
  body["previous_response_id"] = one["id"];
  body["input"] = Json::array({{{"type", "function_call_output"}, {"call_id", call["call_id"]}, {"output", "rain"}}});
  const std::vector<Json> all = events(body);
  std::string arguments;
  for (const Json& event : all) {
    if (event["type"] == "response.function_call_arguments.delta") arguments += event["delta"];
  }
  EXPECT_EQ(arguments, all.back()["response"]["output"][0]["arguments"]);
  body["tool_choice"] = {{"type", "function"}, {"name", "weather"}};
  EXPECT_EQ(ask(body)["output"][0]["name"], "weather");
  body["tool_choice"] = {{"type", "allowed_tools"},
                         {"mode", "required"},
                         {"tools", Json::array({{{"type", "function"}, {"name", "weather"}}})}};
  EXPECT_EQ(ask(body)["output"][0]["name"], "weather");
}

TEST_F(ResponsesHttpTest, UnknownToolsAreToldInTheLog) {
  std::mutex mutex;
  std::string warnings;
  start([&](ServiceOptions& options) {
    options.log = [&](const Json& line) {
      const std::lock_guard lock(mutex);
      if (line["event"] == "warning") warnings += line["message"].get<std::string>();
    };
  });
  Json body = with_tools();
  ask(body);
  {
    const std::lock_guard lock(mutex);
    EXPECT_NE(warnings.find("'web_search'"), std::string::npos);
    EXPECT_NE(warnings.find("'file_search'"), std::string::npos);
  }
  body["tools"].erase(0);  // only tools that are ignored are left
  body.erase("tool_choice");
  body["max_output_tokens"] = 2;
  ask(body);
  stop(1);  // the server may log until then
}

TEST_F(ResponsesHttpTest, SchemasHold) {
  start();
  Json body = {{"input", "a"},
               {"text", {{"format", {{"type", "json_schema"}, {"name", "n"}, {"schema", {{"const", "so"}}}}}}}};
  EXPECT_EQ(ask(body)["output"][0]["content"][0]["text"], "\"so\"");
  // A keyword that cannot be enforced is left out of a schema that is not strict.
  Json& format = body["text"]["format"];
  format["schema"] = {{"const", "so"}, {"if", {{"type", "null"}}}};
  EXPECT_EQ(post("/v1/responses", body.dump())->status, 400);
  format["strict"] = false;
  EXPECT_EQ(ask(body)["output"][0]["content"][0]["text"], "\"so\"");
}

TEST_F(ResponsesHttpTest, RefusalsAreText) {
  ResponseStore store;
  const Json messages = translate_responses(Json::parse(R"({"input":[{"role":"user","content":"a"},
      {"role":"assistant","content":[{"type":"refusal","refusal":"I won't."}]},{"role":"user","content":"b"}]})"),
                                            store)
                            .messages;
  ASSERT_EQ(messages.size(), 3U);
  EXPECT_EQ(messages[1]["content"], "I won't.");
}

TEST_F(ResponsesHttpTest, LogProbabilitiesAreToldToBeMissing) {
  const auto n_warnings = [](const char* body) {
    ResponseStore store;
    return translate_responses(Json::parse(body), store).body.warnings.size();
  };
  EXPECT_EQ(n_warnings(R"({"input":"a","top_logprobs":2})"), 1U);
  EXPECT_EQ(n_warnings(R"({"input":"a","include":["message.output_text.logprobs"]})"), 1U);
  EXPECT_EQ(n_warnings(R"({"input":"a","top_logprobs":0,"include":["reasoning.encrypted_content"]})"), 0U);
}

// Items that Codex and other agents send back.
TEST_F(ResponsesHttpTest, ItemsOfOtherTools) {
  ResponseStore store;
  const ResponsesRequest request = translate_responses(Json::parse(R"({"input":[{"role":"user","content":"a"},
      {"type":"custom_tool_call","call_id":"1","name":"apply_patch","input":"*** Begin"},
      {"type":"custom_tool_call_output","call_id":"1","output":"done"},
      {"type":"local_shell_call","call_id":"2","action":{"type":"exec","command":["ls"]},"status":"completed"},
      {"type":"local_shell_call_output","id":"2","output":"a.txt"},
      {"type":"web_search_call","id":"3","status":"completed"},
      {"type":"function_call","call_id":"4","name":"f","arguments":""},
      {"type":"function_call_output","call_id":"4","output":[{"type":"input_text","text":"x "},{"type":"input_image"}]},
      {"role":"user","content":"b"}]})"),
                                                       store);
  const Json& messages = request.messages;
  ASSERT_EQ(messages.size(), 8U) << messages.dump();
  EXPECT_EQ(messages[1]["tool_calls"][0]["function"]["arguments"], R"({"input":"*** Begin"})");
  EXPECT_EQ(messages[3]["tool_calls"][0]["function"]["name"], "local_shell");
  EXPECT_EQ(messages[4]["tool_call_id"], "2");
  EXPECT_EQ(messages[6]["content"], "x [input_image: left out]");
  EXPECT_EQ(request.body.warnings.size(), 2U);
}

TEST_F(ResponsesHttpTest, WrongRequests) {
  start();
  for (const auto& [body, param] : std::vector<std::pair<std::string, std::string>>{
           {R"({})", "input"},
           {R"({"input":7})", "input"},
           {R"({"input":[]})", "input"},
           {R"({"input":[7]})", "input"},
           {R"({"input":[{"type":"odd"}]})", "input[0].type"},
           {R"({"input":[{"role":"odd","content":"a"}]})", "input[0].role"},
           {R"({"input":[{"role":"user","content":[{"type":"input_image"}]}]})", "input[0].content"},
           {R"({"input":"a","instructions":7})", "instructions"},
           {R"({"input":"a","background":true})", "background"},
           {R"({"input":"a","conversation":"c"})", "conversation"},
           {R"({"input":"a","store":7})", "store"},
           {R"({"input":"a","metadata":7})", "metadata"},
           {R"({"input":"a","truncation":7})", "truncation"},
           {R"({"input":"a","user":7})", "user"},
           {R"({"input":"a","tool_choice":7})", "tool_choice"},
           {R"({"input":"a","tools":7})", "tools"},
           {R"({"input":"a","tools":[7]})", "tools"},
           {R"({"input":"a","max_output_tokens":0})", "max_output_tokens"},
           {R"({"input":"a","reasoning":{"effort":"odd"}})", "reasoning.effort"},
           {R"({"input":"a","text":7})", "text"},
           {R"({"input":"a","text":{"format":{"type":"odd"}}})", "text.format.type"},
           {R"({"input":"a","previous_response_id":7})", "previous_response_id"}}) {
    const auto answer = post("/v1/responses", body);
    EXPECT_EQ(answer->status, 400) << body;
    EXPECT_EQ(Json::parse(answer->body)["error"]["param"], param) << body << answer->body;
  }
}

TEST(ResponseStoreTest, KeepsTheLastOnesWithinItsBounds) {
  ResponseStore store(10'000, 3);
  const auto put = [&](const std::string& id, std::size_t n_bytes = 10) {
    store.put({.id = id, .messages = std::string(n_bytes, 'm'), .response = "r"});
  };
  for (const char* id : {"a", "b", "c"}) put(id);
  EXPECT_TRUE(store.find("a"));  // used last
  put("d");
  EXPECT_FALSE(store.find("b"));
  EXPECT_TRUE(store.find("a") && store.find("c") && store.find("d"));
  put("e", 9'500);
  EXPECT_TRUE(store.find("e"));
  EXPECT_FALSE(store.find("a") || store.find("c") || store.find("d"));
  put("f", 20'000);
  EXPECT_FALSE(store.find("f"));
  EXPECT_TRUE(store.find("e"));
  EXPECT_TRUE(store.remove("e"));
  EXPECT_FALSE(store.remove("e"));
  EXPECT_EQ(store.n_bytes(), 0U);
}

}  // namespace
}  // namespace winnow::server
