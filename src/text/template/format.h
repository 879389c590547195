// Python's two ways to format: "%s" % values and "{}".format(values). Neither reaches anything but values.
#pragma once

#include "text/template/renderer.h"

namespace quern {

/// format % values: a tuple holds the values, a dict the named ones, anything else is the only value.
Value format_percent(Renderer& renderer, const Text& format, const Value& values);
Value format_braces(Renderer& renderer, const Text& format, const Arguments& arguments);

}  // namespace quern
