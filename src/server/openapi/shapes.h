// Words for JSON Schemas. Values.
#pragma once

#include <initializer_list>
#include <string_view>
#include <utility>

#include "base/json.h"

namespace quern::shapes {

Json kind(std::string_view type);
Json text();
Json number();
Json boolean();
Json count();
Json null();
Json word(Json value);  // no other
Json words(std::initializer_list<std::string_view> values);
Json list(Json items);
Json map(Json values);
Json any_of(std::initializer_list<Json> schemas);
Json or_null(Json schema);
/// One of the schemas that the document has by name.
Json shared(std::string_view name);

using Members = std::initializer_list<std::pair<std::string_view, Json>>;
/// An object of these members and no others; names with a '?' need not be there.
Json object(Members members);
/// Further members of an object.
Json with(Json object, Members members);

}  // namespace quern::shapes
