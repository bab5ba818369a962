// Package pagetest has no code. Its tests use the web page of package server/page as people do: in a real browser, on a
// real server, by clicks and keys. It is a module of its own because nothing else needs a browser.
//
// browser_test.go starts the browser, site_test.go a server, tab_test.go has the actions of a person in a tab, and
// look_test.go and pictures_test.go how it looks. modules_test.go reads the modules of the page and needs no browser.
// Each other file has the journeys of one part of the page.
//
// With LATER_SCREENSHOTS=DIR, the tests write pictures of the page to DIR. testdata/screenshots has pictures of the
// main views, which the views must look like but for fonts and small differences. After a change of the looks, write
// them anew and look at them:
//
//	go test -run Screenshots -update
package pagetest
