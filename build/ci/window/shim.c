/*
 * For tests alone: preloaded into the window's program as it is shipped, it lets the
 * system's WebDriver drive the page. The program asks for its view by the one function
 * that is replaced here; the view it gets is the same, but for being controlled.
 */
#include <gtk/gtk.h>
#include <stdlib.h>
#include <webkit2/webkit2.h>

static WebKitWebView *view;

/* What the window starts in its turn is none of the test's. */
__attribute__((constructor)) static void once(void) { unsetenv("LD_PRELOAD"); }

static GtkWidget *give_view(WebKitAutomationSession *s, gpointer d) { return GTK_WIDGET(view); }

static void on_session(WebKitWebContext *c, WebKitAutomationSession *s, gpointer d) {
	WebKitApplicationInfo *who = webkit_application_info_new();
	webkit_application_info_set_name(who, "glasshouse");
	webkit_application_info_set_version(who, 1, 0, 0);
	webkit_automation_session_set_application_info(s, who);
	webkit_application_info_unref(who);
	g_signal_connect(s, "create-web-view", G_CALLBACK(give_view), NULL);
}

GtkWidget *webkit_web_view_new_with_user_content_manager(WebKitUserContentManager *m) {
	WebKitWebContext *c = webkit_web_context_get_default();
	webkit_web_context_set_automation_allowed(c, TRUE);
	g_signal_connect(c, "automation-started", G_CALLBACK(on_session), NULL);
	view = WEBKIT_WEB_VIEW(g_object_new(WEBKIT_TYPE_WEB_VIEW, "user-content-manager", m, "is-controlled-by-automation", TRUE, NULL));
	return GTK_WIDGET(view);
}
