// Elements are built, never parsed from text: nothing that a model says can become markup.

const byId = (id) => document.getElementById(id);

/// element("p", {className: "x", onclick: f}, "text", child, ...)
function element(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name.includes("-")) made.setAttribute(name, value);
    else made[name] = value;
  }
  made.append(...children);
  return made;
}

function copyButton(text) {
  const button = element("button", {type: "button"}, "Copy");
  button.onclick = async () => {
    try {
      await navigator.clipboard.writeText(text());
      button.textContent = "Copied";
    } catch {
      button.textContent = "Not allowed";
    }
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  };
  return button;
}
