// What the theme offers, switched on for each page.
for (const part of ["DoxygenAwesomeDarkModeToggle", "DoxygenAwesomeFragmentCopyButton", "DoxygenAwesomeParagraphLink",
                    "DoxygenAwesomeInteractiveToc"]) {
  try { (0, eval)(part).init() } catch (missing) { console.log(part, missing) }
}
