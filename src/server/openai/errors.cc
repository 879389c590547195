#include "server/openai/errors.h"

#include <algorithm>
#include <cctype>
#include <fmt/format.h>
#include <vector>

#include "base/flags.h"
#include "base/json.h"

namespace quern {
namespace {

void append_member(std::string& out, std::string_view name, const std::string& value) {
  append_json_string(out, name);
  out += ':';
  if (value.empty()) {
    out += "null";
  } else {
    append_json_string(out, value);
  }
}

/// What people call a model: in lower case, without its organization and what tells files and quantizations apart.
std::string short_name(std::string_view name) {
  name.remove_prefix(name.rfind('/') + 1);  // npos + 1 is 0
  name = name.substr(0, name.find(':'));
  std::string out(name);
  std::ranges::transform(out, out.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  if (out.ends_with(".gguf")) out.resize(out.size() - 5);
  return out;
}

/// The known name that is most likely meant; "" when none is close.
std::string closest(std::string_view name, std::span<const std::string> known) {
  const std::string wanted = short_name(name);
  std::vector<std::string> shorts;
  for (const std::string& one : known) {
    shorts.push_back(short_name(one));
    if (!wanted.empty() && shorts.back() == wanted) return one;
  }
  const std::vector<std::string_view> views(shorts.begin(), shorts.end());
  const auto found = std::ranges::find(views, nearest(wanted, views));
  return wanted.empty() || found == views.end() ? "" : known[static_cast<size_t>(found - views.begin())];
}

}  // namespace

std::string error_body(const ApiError& error) {
  std::string out = R"({"error":{"message":)";
  append_json_string(out, error.message);
  out += ',';
  append_member(out, "type", error.type);
  out += ',';
  append_member(out, "param", error.param);
  out += ',';
  append_member(out, "code", error.code);
  out += "}}";
  return out;
}

HttpResponse error_response(const ApiError& error) {
  HttpResponse response{error.status, {{"Content-Type", "application/json"}}, error_body(error)};
  if (error.retry_after_s > 0) response.headers.emplace_back("Retry-After", std::to_string(error.retry_after_s));
  if (error.status == 401) response.headers.emplace_back("WWW-Authenticate", "Bearer");
  return response;
}

ApiError plain_error(int status, std::string message) {
  ApiError error{status, std::move(message)};
  if (status == 429) {
    error.type = "rate_limit_error";
    error.code = "rate_limit_exceeded";
    error.retry_after_s = 1;
  } else if (status == 503) {
    error.type = "server_error";
    error.code = "service_unavailable";
    error.retry_after_s = 5;
  } else if (status == 504) {
    error.type = "timeout";
    error.code = "timeout";
  } else if (status >= 500) {
    error.type = "server_error";
  }
  return error;
}

ApiError model_not_found(std::string_view name, std::span<const std::string> known) {
  name = name.substr(0, 256);
  const std::string close = closest(name, known);
  return {404,
          fmt::format("The model `{}` does not exist. {}This server has: {}.", name,
                      close.empty() ? "" : fmt::format("Did you mean `{}`? ", close), fmt::join(known, ", ")),
          "model_not_found", "model"};
}

ApiError unsupported(std::string param, std::string message) {
  return {400, std::move(message), "unsupported_parameter", std::move(param)};
}

}  // namespace quern
