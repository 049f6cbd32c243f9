"use strict";
// Draws the OpenAPI document. Texts enter the page as text nodes only, so nothing in the document can become markup.
const METHODS = ["get", "post", "put", "delete"];
const DEPTH = 6;
let schemas = {};

function element(tag, className, ...children) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

/** Text in which `words` in backticks become code. */
function prose(tag, className, text) {
  const made = element(tag, className);
  text.split("`").forEach((part, index) => made.append(index % 2 ? element("code", "", part) : part));
  return made;
}

function resolved(schema) {
  const reference = schema.$ref;
  return reference && reference.startsWith("#/components/schemas/") ? schemas[reference.split("/").pop()] : schema;
}

/** The alternatives of a schema without null. */
function alternatives(schema) {
  return (schema.anyOf || [schema]).filter((part) => part.type !== "null");
}

function kind(schema) {
  if (schema.anyOf) return schema.anyOf.map(kind).sort((a, b) => (a === "null") - (b === "null")).join(" or ");
  const meant = resolved(schema);
  if (meant.enum) return meant.enum.map((value) => JSON.stringify(value)).join(" | ");
  if (meant.type === "array") return "list of " + kind(meant.items || {});
  if (meant.type === "object" && meant.additionalProperties && !meant.properties) return "map of " + kind(meant.additionalProperties);
  if (schema.$ref) return schema.$ref.split("/").pop();
  return (meant.type || "any") + (meant.format ? " (" + meant.format + ")" : "");
}

/** The object inside a schema whose fields can be shown: itself, or what its lists and maps hold. */
function inner(schema) {
  for (const part of alternatives(schema)) {
    const meant = resolved(part);
    if (meant.properties) return meant;
    if (meant.type === "array" && meant.items) { const found = inner(meant.items); if (found) return found; }
    if (meant.additionalProperties && meant.additionalProperties !== true) { const found = inner(meant.additionalProperties); if (found) return found; }
  }
  return null;
}

function fields(schema, depth) {
  const object = inner(schema);
  if (!object || depth > DEPTH) return null;
  const required = new Set(object.required || []);
  const list = element("ul", "fields");
  for (const [name, field] of Object.entries(object.properties)) list.append(row(name, field, required.has(name), depth));
  return list;
}

function row(name, field, must, depth) {
  const made = element("li", "", element("span", "name", name), element("span", "kind", kind(field)));
  if (must && depth === 0) made.append(element("span", "must", "required"));
  const says = field.description || "";
  const fallback = field.default !== undefined && field.default !== null ? "`" + JSON.stringify(field.default) + "` by default" : "";
  if (says || fallback) made.append(prose("span", "field-says says", [says, fallback].filter(Boolean).join("; ")));
  const more = fields(field, depth + 1);
  if (more) made.append(element("details", "nested", element("summary", "", "fields"), more));
  return made;
}

function parameters(operation, where) {
  const found = (operation.parameters || []).filter((parameter) => parameter.in === where);
  if (!found.length) return null;
  const list = element("ul", "fields");
  for (const one of found) list.append(row(one.name, { ...one.schema, description: one.description }, one.required, 0));
  return element("section", "", element("h3", "", where === "path" ? "In the path" : "In the query"), list);
}

function quoted(text) {
  return "'" + text.replaceAll("'", "'\\''") + "'";
}

function curl(method, path, operation) {
  const needed = (operation.parameters || []).filter((one) => one.in === "query" && one.required);
  const query = needed.map((one) => one.name + "=" + (one.name === "queue" ? "orders" : one.name.toUpperCase())).join("&");
  const filled = path.replace(/{queue}|{name}/g, "orders").replace(/{(\w+)}/g, (_, name) => name.toUpperCase());
  const url = location.origin + filled + (query ? "?" + query : "");
  const body = operation.requestBody && operation.requestBody.content["application/json"];
  const lines = ["curl" + (method === "get" ? "" : " -X " + method.toUpperCase()) + " " + quoted(url)];
  if (body && (body.example || operation.requestBody.required)) {
    lines.push("-H 'Content-Type: application/json'");
    lines.push("-d " + quoted(JSON.stringify(body.example || sample(body.schema, 0))));
  }
  return lines.join(" \\\n  ");
}

/** A value that has all a schema requires, to start from. */
function sample(schema, depth) {
  const meant = resolved(alternatives(schema)[0] || {});
  if (meant.enum) return meant.enum[0];
  if (meant.type === "array") return depth > DEPTH ? [] : [sample(meant.items || {}, depth + 1)];
  if (meant.properties) {
    const made = {};
    for (const name of meant.required || []) made[name] = sample(meant.properties[name], depth + 1);
    return made;
  }
  return { integer: 1, number: 1, boolean: true, string: "…", object: {} }[meant.type] ?? null;
}

function copyable(text) {
  const button = element("button", "", "Copy");
  button.type = "button";
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  });
  return element("div", "sample", element("pre", "", text), button);
}

function requestBody(operation) {
  const body = operation.requestBody;
  if (!body) return null;
  const section = element("section", "", element("h3", "", body.required ? "Body" : "Body, may be left out"));
  for (const [media, told] of Object.entries(body.content)) {
    const shown = fields(told.schema, 0);
    section.append(shown || prose("p", "none", "or `" + media + "`"));
  }
  return section;
}

function answers(operation, document_) {
  const section = element("section", "", element("h3", "", "Answers"));
  for (const [status, answer] of Object.entries(operation.responses)) {
    const meant = answer.$ref ? document_.components.responses[answer.$ref.split("/").pop()] : answer;
    const content = Object.entries(meant.content || {});
    const title = element("span", "", element("span", "name", status), element("span", "kind", meant.description));
    const parts = content.flatMap(([media, told]) => told.schema.anyOf && !told.schema.anyOf.some((part) => part.type === "null")
      ? told.schema.anyOf.map((schema) => [media, schema]) : [[media, told.schema]]);
    const shown = parts.map(([media, schema]) => fields(schema, 1) || prose("p", "none", "`" + media + "`"));
    section.append(shown.length ? element("details", "answer", element("summary", "", title), ...shown) : element("div", "answer", title));
  }
  return section;
}

function drawRoute(method, path, operation, document_) {
  const title = element("summary", "", element("span", "method " + method, method.toUpperCase()), element("span", "path", path),
    prose("span", "says", operation.summary));
  const route = element("details", "route", title);
  route.id = operation.operationId;
  route.dataset.text = (method + " " + path + " " + operation.summary).toLowerCase();
  // Drawn when it is opened: there are many, and few are read.
  route.addEventListener("toggle", () => {
    if (!route.open || route.children.length > 1) return;
    route.append(element("div", "inside",
      operation.description ? prose("p", "", operation.description) : null,
      element("h3", "", "Try it"), copyable(curl(method, path, operation)),
      parameters(operation, "path"), parameters(operation, "query"), requestBody(operation), answers(operation, document_)));
  });
  return route;
}

function draw(document_) {
  schemas = document_.components.schemas;
  document.getElementById("version").textContent = document_.info.version;
  const intro = document.getElementById("intro");
  intro.replaceWith(Object.assign(prose("p", "intro", document_.info.description), { id: "intro" }));
  const routes = document.getElementById("routes");
  const contents = document.getElementById("contents");
  for (const tag of document_.tags) {
    const section = element("section", "group", element("h2", "", tag.name));
    contents.append(element("h2", "", tag.name));
    for (const [path, methods] of Object.entries(document_.paths)) {
      for (const method of METHODS.filter((name) => methods[name] && methods[name].tags.includes(tag.name))) {
        section.append(drawRoute(method, path, methods[method], document_));
        const link = element("a", "", element("span", "method " + method, method.toUpperCase()),
          element("span", "path", path.replace("/api/v1", "")));
        link.href = "#" + methods[method].operationId;
        link.title = methods[method].summary;
        link.dataset.for = methods[method].operationId;
        contents.append(link);
      }
    }
    routes.append(section);
  }
}

function filter(words) {
  const wanted = words.toLowerCase().split(/\s+/).filter(Boolean);
  for (const route of document.querySelectorAll(".route")) {
    route.hidden = !wanted.every((word) => route.dataset.text.includes(word));
    document.querySelector('[data-for="' + route.id + '"]').hidden = route.hidden;
  }
  for (const group of document.querySelectorAll(".group")) group.hidden = !group.querySelector(".route:not([hidden])");
}

function openNamed() {
  const route = location.hash && document.getElementById(location.hash.slice(1));
  if (route && route.tagName === "DETAILS") { route.open = true; route.scrollIntoView(); }
}

async function start() {
  try {
    const answer = await fetch("openapi.json");
    draw(await answer.json());
  } catch (error) {
    document.getElementById("intro").textContent = "The reference could not be read: " + error.message;
    return;
  }
  document.getElementById("filter").addEventListener("input", (event) => filter(event.target.value));
  addEventListener("hashchange", openNamed);
  openNamed();
}
start();
