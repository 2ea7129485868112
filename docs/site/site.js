// What the theme offers, switched on for each page, and a search through the text of the guides.
for (const part of ["DoxygenAwesomeDarkModeToggle", "DoxygenAwesomeFragmentCopyButton", "DoxygenAwesomeParagraphLink",
                    "DoxygenAwesomeInteractiveToc"]) {
  try { (0, eval)(part).init() } catch (missing) { console.log(part, missing) }
}

// Doxygen's box finds names and titles while one types. Enter looks for all that was typed, in the text.
document.addEventListener("keydown", event => {
  if (event.key !== "Enter" || event.target.id !== "MSearchField" || event.target.value.trim() === "") return
  event.stopImmediatePropagation()
  location.href = "search-guides.html?q=" + encodeURIComponent(event.target.value)
}, true)

// search-guides.html: `sections` is what docs/site/build.py has found, in the order of the pages.
function searchGuides(sections) {
  const field = document.getElementById("guide-search"), results = document.getElementById("guide-results")
  function show() {
    const words = field.value.toLowerCase().split(/\s+/).filter(word => word)
    const found = words.length === 0 ? [] : sections.filter(
      section => words.every(word => (section.page + " " + section.title + " " + section.text).toLowerCase().includes(word)))
    const inTitle = section => words.some(word => section.title.toLowerCase().includes(word)) ? 0 : 1
    found.sort((a, b) => inTitle(a) - inTitle(b))
    results.replaceChildren(...found.map(section => result(section, words)))
    if (words.length > 0 && found.length === 0) results.textContent = "No section of any guide has all of these words."
  }
  function result(section, words) {
    const item = document.createElement("div"), link = document.createElement("a"), text = document.createElement("p")
    link.href = section.url
    link.textContent = section.page + (section.title ? ": " + section.title : "")
    const lower = section.text.toLowerCase()
    const first = Math.max(0, Math.min(...words.map(word => lower.indexOf(word)).filter(place => place >= 0), lower.length) - 80)
    const part = section.text.slice(first, first + 260)
    let at = 0
    while (at < part.length) {   // the words in it, marked
      const next = words.map(word => [part.toLowerCase().indexOf(word, at), word.length]).filter(([place]) => place >= 0)
                        .sort((a, b) => a[0] - b[0])[0]
      if (!next) break
      const mark = document.createElement("mark")
      mark.textContent = part.slice(next[0], next[0] + next[1])
      text.append(part.slice(at, next[0]), mark)
      at = next[0] + next[1]
    }
    text.append(part.slice(at))
    item.append(link, text)
    return item
  }
  field.value = new URLSearchParams(location.search).get("q") || ""
  field.addEventListener("input", show)
  field.focus()
  show()
}
